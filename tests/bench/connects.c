/* Both ends of a bench of connections; compiled when the bench runs, for in Python the client would be what is measured.
 *
 *   connects serve ADDRESS PORT...                      accepts and closes until it is killed, and at the first port sends datagrams
 *                                                       of UDP back; prints a line when it listens at all
 *   connects connect COUNT NAMESPACE tcp|udp ADDRESS PORT...
 *                                                       from each network NAMESPACE, a path, COUNT times: connects once to each of its
 *                                                       PROTOCOL ADDRESS PORT in turn, for UDP from a new port sends a datagram and
 *                                                       waits for its reply; targets of one namespace stand side by side
 *   connects sink ADDRESS PORT                          reads and discards what comes, by TCP and UDP; prints a line when it listens
 *   connects load KIND SECONDS PROCESSES ADDRESS PORT   so many processes at once, as fast as it goes: connect again and again (KIND
 *                                                       connect), or each write to one connection (stream), or send datagrams of 64
 *                                                       bytes from one port (datagrams)
 *
 * load prints a line of three numbers: connections, bytes or datagrams; how many failed; and nanoseconds of CPU of these processes.
 * connect prints for each of them, in order, a line of two numbers: nanoseconds of connect(2), or of the round trip, and its errno
 * or 0.  Connections end by RST, so that no port waits for two minutes.  Exit status: 0, or 2 with a message for bad usage and failures of the
 * machine; a connection that fails is a sample, not a failure.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static struct addrinfo *resolve(int type, const char *address, const char *port)
{
    struct addrinfo hints = {.ai_socktype = type, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;
    int error = getaddrinfo(address, port, &hints, &found);
    if (error) {
        fprintf(stderr, "%s port %s: %s\n", address, port, gai_strerror(error));
        exit(2);
    }
    return found;
}

static int bind_at(int type, const char *address, const char *port)
{
    struct addrinfo *where = resolve(type & SOCK_STREAM ? SOCK_STREAM : SOCK_DGRAM, address, port);
    int one = 1, bound = socket(where->ai_family, type, 0);
    if (bound < 0 || setsockopt(bound, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(bound, where->ai_addr, where->ai_addrlen))
        fail("bind");
    freeaddrinfo(where);
    return bound;
}

static int listen_at(int flags, const char *address, const char *port)
{
    int listener = bind_at(SOCK_STREAM | flags, address, port);
    if (listen(listener, 4096))
        fail("listen");
    return listener;
}

static void listening(void)
{
    puts("listening");
    fflush(stdout);
}

static void echo(int bound) /* in a process of its own, which ends with this one */
{
    struct sockaddr_storage from;
    socklen_t length;
    char text[64];
    ssize_t size;
    if (fork())
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        length = sizeof from;
        if ((size = recvfrom(bound, text, sizeof text, 0, (struct sockaddr *)&from, &length)) >= 0)
            sendto(bound, text, size, 0, (struct sockaddr *)&from, length);
    }
}

static _Noreturn void serve(const char *address, char **ports, int count)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int connection, listeners[count];
    for (int i = 0; i < count; i++)
        listeners[i] = listen_at(SOCK_NONBLOCK, address, ports[i]);
    echo(bind_at(SOCK_DGRAM, address, ports[0]));
    listening();
    for (;;) { /* all of a millisecond at once: to wake up for each would take the processor from the client */
        for (int i = 0; i < count; i++)
            while ((connection = accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC)) >= 0)
                close(connection);
        nanosleep(&pause, NULL);
    }
}

static _Noreturn void sink(const char *address, const char *port)
{
    static char data[1 << 17];
    int connection, listener = listen_at(0, address, port), datagrams = bind_at(SOCK_DGRAM, address, port);
    listening();
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            recv(datagrams, data, sizeof data, 0);
    }
    for (;;) {
        if ((connection = accept(listener, NULL, NULL)) < 0)
            continue;
        while (read(connection, data, sizeof data) > 0)
            ;
        close(connection);
    }
}

static long long elapsed(const struct timespec *from, const struct timespec *to)
{
    return (to->tv_sec - from->tv_sec) * 1000000000LL + (to->tv_nsec - from->tv_nsec);
}

static int open_to(const struct addrinfo *target) /* not connected yet; closing it ends a connection by RST */
{
    const struct linger at_once = {.l_onoff = 1};
    const struct timeval patience = {.tv_sec = 2};
    int made = socket(target->ai_family, target->ai_socktype | SOCK_CLOEXEC, 0);
    if (made < 0)
        fail("socket");
    if (target->ai_socktype == SOCK_STREAM)
        setsockopt(made, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return made;
}

static void sample(const struct addrinfo *target)
{
    struct timespec before, after;
    char byte = 0;
    int error = 0, datagram = target->ai_socktype == SOCK_DGRAM, connection = open_to(target);
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (connect(connection, target->ai_addr, target->ai_addrlen) ||
        (datagram && (send(connection, &byte, 1, 0) < 0 || recv(connection, &byte, 1, 0) < 0)))
        error = errno;
    clock_gettime(CLOCK_MONOTONIC, &after);
    close(connection);
    printf("%lld %d\n", elapsed(&before, &after), error);
}

struct target {
    const char *namespace;
    struct addrinfo *where;
};

static void enter(const char *namespace)
{
    int descriptor = open(namespace, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || setns(descriptor, CLONE_NEWNET))
        fail(namespace);
    close(descriptor);
}

/* One process for all namespaces: where its memory lies costs or saves each of them the same. */
static int connect_all(long count, char **arguments, int number)
{
    struct target targets[number], *target = targets, *next;
    for (int i = 0; i < number; i++) {
        char **one = arguments + 4 * i;
        targets[i] = (struct target){one[0], resolve(strcmp(one[1], "udp") ? SOCK_STREAM : SOCK_DGRAM, one[2], one[3])};
    }
    for (; target < targets + number; target = next) {
        for (next = target; next < targets + number && !strcmp(next->namespace, target->namespace); next++)
            ;
        enter(target->namespace);
        for (long left = count; left > 0; left--)
            for (struct target *one = target; one < next; one++)
                sample(one->where);
    }
    return fflush(stdout) ? 2 : 0;
}

struct done {
    long long count, failed;
};

static struct done work(const char *kind, const struct addrinfo *target, long long nanoseconds)
{
    static char data[1 << 17];
    struct done done = {0};
    struct timespec start, now;
    int again = !strcmp(kind, "connect"), flow = again ? -1 : open_to(target);
    size_t size = target->ai_socktype == SOCK_DGRAM ? 64 : sizeof data;
    if (!again && connect(flow, target->ai_addr, target->ai_addrlen))
        return (struct done){.failed = 1};
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        ssize_t sent;
        if (again) {
            int one = open_to(target);
            sent = connect(one, target->ai_addr, target->ai_addrlen) ? -1 : 1;
            close(one);
        } else if ((sent = send(flow, data, size, MSG_NOSIGNAL)) > 0 && target->ai_socktype == SOCK_DGRAM)
            sent = 1;
        if (sent > 0)
            done.count += sent;
        else
            done.failed++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (elapsed(&start, &now) < nanoseconds);
    return done;
}

static int load(char **arguments)
{
    const char *kind = arguments[0];
    struct addrinfo *target =
        resolve(strcmp(kind, "datagrams") ? SOCK_STREAM : SOCK_DGRAM, arguments[3], arguments[4]);
    int ends[2], processes = atoi(arguments[2]);
    struct done done, all = {0};
    struct rusage used;
    if (pipe(ends))
        fail("pipe");
    for (int i = 0; i < processes; i++)
        if (!fork()) {
            done = work(kind, target, strtod(arguments[1], NULL) * 1e9);
            _exit(write(ends[1], &done, sizeof done) != sizeof done);
        }
    close(ends[1]);
    for (int i = 0; i < processes; i++) {
        if (read(ends[0], &done, sizeof done) != sizeof done)
            fail("read");
        all.count += done.count;
        all.failed += done.failed;
    }
    while (wait(NULL) > 0)
        ;
    getrusage(RUSAGE_CHILDREN, &used);
    printf("%lld %lld %lld\n", all.count, all.failed,
           (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL +
               (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 4 && !strcmp(argv[1], "serve"))
        serve(argv[2], argv + 3, argc - 3);
    if (argc == 4 && !strcmp(argv[1], "sink"))
        sink(argv[2], argv[3]);
    if (argc == 7 && !strcmp(argv[1], "load"))
        return load(argv + 2);
    if (argc >= 7 && argc % 4 == 3 && !strcmp(argv[1], "connect"))
        return connect_all(strtol(argv[2], NULL, 10), argv + 3, (argc - 3) / 4);
    fprintf(stderr, "usage: %s serve ADDRESS PORT... | connect COUNT NAMESPACE tcp|udp ADDRESS PORT... | sink ADDRESS PORT |"
                    " load connect|stream|datagrams SECONDS PROCESSES ADDRESS PORT\n", argv[0]);
    return 2;
}
