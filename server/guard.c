/* guard.c - Host, Origin, key and content type (guard.h). */
#include "guard.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 256 };

/* The host of "host", "host:port", "[v6]" or "[v6]:port", without brackets; false: none of these. */
static bool split_host(const char *header, char *name)
{
    const char *end, *port;
    bool v6 = header[0] == '[';
    if (v6) {
        header++;
        end = strchr(header, ']');
        if (!end) return false;
        port = end + 1;
    } else {
        end = port = header + strcspn(header, ":");
    }
    size_t n = (size_t)(end - header);
    if (n == 0 || n >= NAME_BYTES || (*port && *port != ':')) return false;
    if (*port == ':' && (!port[1] || strlen(port + 1) > 5 || strspn(port + 1, "0123456789") != strlen(port + 1)))
        return false;
    memcpy(name, header, n);
    name[n] = 0;
    struct in6_addr a;
    return !v6 || inet_pton(AF_INET6, name, &a) == 1;
}

static bool is_address(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    return inet_pton(AF_INET, name, &v4) == 1 || inet_pton(AF_INET6, name, &v6) == 1;
}

bool guard_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (!strcasecmp(host, "localhost")) return true;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool guard_host(const char *header, const char *bound, const char *const *hosts, size_t n_hosts)
{
    char name[NAME_BYTES];
    if (!header || !split_host(header, name)) return false;
    if (guard_loopback(name) || !strcasecmp(name, bound)) return true;
    for (size_t i = 0; i < n_hosts; i++)
        if (!strcasecmp(name, hosts[i])) return true;
    return !guard_loopback(bound) && is_address(name);
}

bool guard_origin(const char *origin, const char *host)
{
    if (!origin) return true;
    size_t n = !strncasecmp(origin, "http://", 7) ? 7 : !strncasecmp(origin, "https://", 8) ? 8 : 0;
    return n && host && !strcasecmp(origin + n, host);
}

const char *guard_listed(const char *origin, const char *const *origins, size_t n)
{
    for (size_t i = 0; i < n && origin; i++)
        if (!strcmp(origin, origins[i])) return origins[i];
    return NULL;
}

bool guard_is_origin(const char *s)
{
    char name[NAME_BYTES];
    const char *host = strstr(s, "://");
    if (!host || host == s) return false;
    for (const char *p = s; p < host; p++) {
        bool inner = p > s && (isdigit((unsigned char)*p) || strchr("+-.", *p));
        if (!islower((unsigned char)*p) && !inner) return false;
    }
    for (const char *p = host + 3; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr(".-_:[]", *p)) return false;
    return split_host(host + 3, name);
}

bool guard_key(const char *authorization, const char *key)
{
    const char *given = authorization && !strncasecmp(authorization, "Bearer ", 7) ? authorization + 7 : "";
    size_t n = strlen(given), m = strlen(key);
    unsigned char differ = n != m;
    for (size_t i = 0; i < m; i++) /* as many steps as the key is long, whatever was given */
        differ |= (unsigned char)(key[i] ^ (n ? given[i % n] : 0));
    return !differ;
}

bool guard_json(const char *content_type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    if (!content_type || strncasecmp(content_type, json, n) != 0) return false;
    const char *p = content_type + n;
    while (*p == ' ' || *p == '\t') p++;
    return !*p || *p == ';';
}
