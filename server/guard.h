/* guard.h - who may ask: checks on headers, without state. */
#ifndef SERVER_GUARD_H
#define SERVER_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* The host is the machine itself: 127.0.0.0/8, ::1, localhost. */
bool guard_loopback(const char *host);

/* A Host header that a page of another site can't have made a browser send to us.  Such a page reaches this address
 * under a name of its own (DNS rebinding): names must be known.  `bound`: what the server listens on; a server beyond
 * loopback also takes any address written in digits. */
bool guard_host(const char *header, const char *bound, const char *const *hosts, size_t n_hosts);

/* No Origin header (NULL), or that of our own page: http or https and the Host header's text. */
bool guard_origin(const char *origin, const char *host);

/* The one of `origins` that the header is, letter by letter; NULL: none. */
const char *guard_listed(const char *origin, const char *const *origins, size_t n);
/* Something a browser may send as an Origin: scheme://host or scheme://host:port, with nothing behind it. */
bool guard_is_origin(const char *s);

/* "Bearer KEY", compared in a time that does not depend on where they differ. */
bool guard_key(const char *authorization, const char *key);

/* "application/json", with or without parameters. */
bool guard_json(const char *content_type);

#endif
