/* Both ends of a bench of new TCP connections; compiled when the bench runs, for in Python the client would be what is measured.
 *
 *   connects serve ADDRESS PORT...          accepts and closes until it is killed; prints a line when it listens at all
 *   connects connect COUNT ADDRESS PORT...  COUNT times: connects once to each ADDRESS PORT in turn
 *
 * connect prints for each connection, in order, a line of two numbers: nanoseconds of connect(2), and its errno or 0.
 * Connections end by RST, so that no port waits for two minutes.  Exit status: 0, or 2 with a message for bad usage and failures of the
 * machine; a connection that fails is a sample, not a failure.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static struct addrinfo *resolve(const char *address, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;
    int error = getaddrinfo(address, port, &hints, &found);
    if (error) {
        fprintf(stderr, "%s port %s: %s\n", address, port, gai_strerror(error));
        exit(2);
    }
    return found;
}

static int listen_at(const char *address, const char *port)
{
    struct addrinfo *where = resolve(address, port);
    int one = 1, listener = socket(where->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(listener, where->ai_addr, where->ai_addrlen) || listen(listener, 4096))
        fail("listen");
    freeaddrinfo(where);
    return listener;
}

static _Noreturn void serve(const char *address, char **ports, int count)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int connection, listeners[count];
    for (int i = 0; i < count; i++)
        listeners[i] = listen_at(address, ports[i]);
    puts("listening");
    fflush(stdout);
    for (;;) { /* all of a millisecond at once: to wake up for each would take the processor from the client */
        for (int i = 0; i < count; i++)
            while ((connection = accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC)) >= 0)
                close(connection);
        nanosleep(&pause, NULL);
    }
}

static long long elapsed(const struct timespec *from, const struct timespec *to)
{
    return (to->tv_sec - from->tv_sec) * 1000000000LL + (to->tv_nsec - from->tv_nsec);
}

static void sample(const struct addrinfo *target)
{
    const struct linger at_once = {.l_onoff = 1};
    const struct timeval patience = {.tv_sec = 2};
    struct timespec before, after;
    int error = 0;
    int connection = socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        fail("socket");
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (connect(connection, target->ai_addr, target->ai_addrlen))
        error = errno;
    clock_gettime(CLOCK_MONOTONIC, &after);
    close(connection);
    printf("%lld %d\n", elapsed(&before, &after), error);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && !strcmp(argv[1], "serve"))
        serve(argv[2], argv + 3, argc - 3);
    if (argc >= 5 && argc % 2 && !strcmp(argv[1], "connect")) {
        int targets = (argc - 3) / 2;
        struct addrinfo *target[targets];
        for (int i = 0; i < targets; i++)
            target[i] = resolve(argv[3 + 2 * i], argv[4 + 2 * i]);
        for (long left = strtol(argv[2], NULL, 10); left > 0; left--)
            for (int i = 0; i < targets; i++)
                sample(target[i]);
        return fflush(stdout) ? 2 : 0;
    }
    fprintf(stderr, "usage: %s serve ADDRESS PORT... | connect COUNT ADDRESS PORT...\n", argv[0]);
    return 2;
}
