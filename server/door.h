/* door.h - who is connected.  The door listens, lets clients in as far as there are places, tells the others that there
 * are none, and closes the connections of those who take too long.  It has one thread, which never waits for anything
 * but sockets: a crowd is turned away at once, whatever the rest of the server is doing.
 *
 * A connection is shared with the server, who gets a descriptor of its own: closing that is not the end.  The door
 * closes the second one when the client has seen the last of its answer, since a socket that is closed while something
 * is unread takes back what was just sent. */
#ifndef SERVER_DOOR_H
#define SERVER_DOOR_H

#include "buf.h"
#include "server.h"

enum {
    DOOR_PLACES = 64,
    DOOR_MOST_CONNS = DOOR_PLACES + 256 /* with those who have been answered, refused or shut out */
};

typedef enum { CONN_FREE, CONN_READING, CONN_BODY, CONN_WORKING, CONN_SENDING, CONN_LEAVING } conn_state;

typedef struct conn conn;
typedef struct door door;

typedef struct {
    const server_opts *o;  /* borrowed, until door_close; host, port, key and the times count here */
    buf full;              /* what one is sent for whom there is no place; owned by the door */
    bool (*let_in)(void *user, int fd);     /* a client; takes fd, whatever it returns */
    void (*told)(void *user, int open, bool refused); /* the number of connections, and whether one was turned away */
    void *user;
} door_opts;

/* Listens; nobody is let in before door_start.  NULL: why tells.  Takes full. */
door *door_open(const door_opts *o, char *why, size_t cap);
bool door_start(door *d); /* false: no thread could be started */
int door_port(const door *d);
void door_stop(door *d);  /* nobody else is let in; those who are inside stay */
void door_close(door **d); /* after the server has closed all of its descriptors */

/* The connection of a descriptor that let_in was given. */
conn *door_conn(door *d, int fd);
int conn_socket(const conn *c); /* good until conn_left */
void conn_is(door *d, conn *c, conn_state state); /* where its request is: reading to sending */
void conn_left(door *d, conn *c); /* the server is done with it, and closes its descriptor next */
bool door_busy(door *d); /* somebody waits for an answer or is being sent one */

#endif
