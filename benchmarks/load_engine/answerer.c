/* An OpenAI API that answers nothing but time: streams of canned events, as fast as one core writes them.

   answerer [--port N] [--ttft-us N] [--gap-us N] [--truth FILE]

   Prints the port. One thread, epoll, HTTP/1.1 with kept connections. A reply has as many chunks as the request's
   max_tokens, each of one token in a write of its own; usage when asked, then [DONE]. Without a gap the streams take
   turns. Times of writes come from a heap of deadlines; the last 100 us before one are spun. The truth, for every
   streamed reply in the order of their ends: when the request was whole, the stamps before the writes of its first
   and last chunk (ns, CLOCK_MONOTONIC), its tokens, its connection. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536
#define SPIN_NS 100000
#define EVENTS 1024

typedef struct {
    int64_t read_ns, first_ns, last_ns;
    int32_t tokens, connection;
} Record;

typedef struct {
    char *in, *out;
    size_t in_len, in_room, out_at, out_len, out_room;
    int fd, chat, usage, left, prompt_tokens, closes, blocked, answering;
    int64_t due_ns;
    Record record;
} Connection;

static Connection *all[MOST];
static int heap[MOST], heap_len, ring[MOST], ring_at, ring_len;
static int poll_fd, listen_fd;
static int64_t ttft_ns, gap_ns;
static FILE *truth;
static volatile sig_atomic_t ended;

static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n";
static const char COMMON[] = "\"created\":1700000000,\"model\":\"known\"";
static char event[2][2][512]; /* chat or not; last or not: a chunk of HTTP that holds one event */
static int event_len[2][2];

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int framed(char *target, const char *data) {
    return sprintf(target, "%zx\r\n%s\r\n", strlen(data), data);
}

static void make_events(void) {
    char data[400];
    for (int last = 0; last < 2; last++) {
        const char *end = last ? "\"length\"" : "null";
        sprintf(data,
                "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",%s,\"choices\":[{\"index\":0,"
                "\"text\":\" the\",\"logprobs\":null,\"finish_reason\":%s}]}\n\n",
                COMMON, end);
        event_len[0][last] = framed(event[0][last], data);
        sprintf(data,
                "data: {\"id\":\"cmpl-1\",\"object\":\"chat.completion.chunk\",%s,\"choices\":[{\"index\":0,"
                "\"delta\":{\"content\":\" the\"},\"logprobs\":null,\"finish_reason\":%s}]}\n\n",
                COMMON, end);
        event_len[1][last] = framed(event[1][last], data);
    }
}

static void swap(int a, int b) {
    int kept = heap[a];
    heap[a] = heap[b], heap[b] = kept;
}

static void push(int fd) {
    int at = heap_len++;
    heap[at] = fd;
    for (; at && all[heap[at]]->due_ns < all[heap[(at - 1) / 2]]->due_ns; at = (at - 1) / 2)
        swap(at, (at - 1) / 2);
}

static int pop(void) {
    int first = heap[0];
    heap[0] = heap[--heap_len];
    for (int at = 0, child; (child = 2 * at + 1) < heap_len; at = child) {
        if (child + 1 < heap_len && all[heap[child + 1]]->due_ns < all[heap[child]]->due_ns) child++;
        if (all[heap[at]]->due_ns <= all[heap[child]]->due_ns) break;
        swap(at, child);
    }
    return first;
}

static void watch(int fd, uint32_t what, int how) {
    struct epoll_event wanted = {.events = what, .data.fd = fd};
    epoll_ctl(poll_fd, how, fd, &wanted);
}

static void forget(int fd) {
    close(fd);
    free(all[fd]->in);
    free(all[fd]->out);
    free(all[fd]);
    all[fd] = NULL;
}

/* Write now what can be written, keep the rest. Returns 0 when the connection is gone. */
static int put(Connection *one, const char *data, size_t length) {
    if (!one->blocked) {
        ssize_t sent = send(one->fd, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return 0;
        if (sent > 0) data += sent, length -= sent;
        if (!length) return 1;
        one->blocked = 1;
        one->out_at = one->out_len = 0;
        watch(one->fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
    if (one->out_len + length > one->out_room) {
        one->out_room = 2 * (one->out_len + length);
        one->out = realloc(one->out, one->out_room);
    }
    memcpy(one->out + one->out_len, data, length);
    one->out_len += length;
    return 1;
}

static void later(int fd, Connection *one) {
    one->answering = 1;
    if (one->due_ns) push(fd);
    else ring[(ring_at + ring_len++) % MOST] = fd;
}

static int reply(Connection *one, const char *status, const char *type, const char *body) {
    char text[2048];
    int length = sprintf(text, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s", status, type,
                         strlen(body), body);
    return put(one, text, length);
}

static int begin(Connection *one);

/* Write the next event of a stream. Returns 0 when the connection is gone. */
static int next_event(int fd, Connection *one) {
    char text[2048], data[400];
    int length = 0, first = one->left == one->record.tokens, last = one->left == 1;
    if (first && !ttft_ns) {
        memcpy(text, HEAD, sizeof HEAD - 1);
        length = sizeof HEAD - 1;
    }
    memcpy(text + length, event[one->chat][last], event_len[one->chat][last]);
    length += event_len[one->chat][last];
    if (last) {
        if (one->usage) {
            sprintf(data,
                    "data: {\"id\":\"cmpl-1\",\"object\":\"%s\",%s,\"choices\":[],\"usage\":{\"prompt_tokens\":%d,"
                    "\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n",
                    one->chat ? "chat.completion.chunk" : "text_completion", COMMON, one->prompt_tokens,
                    one->prompt_tokens + one->record.tokens, one->record.tokens);
            length += framed(text + length, data);
        }
        length += framed(text + length, "data: [DONE]\n\n");
        length += sprintf(text + length, "0\r\n\r\n");
    }
    if (first || last) {
        int64_t at_ns = now_ns();
        if (first) one->record.first_ns = at_ns;
        if (last) one->record.last_ns = at_ns;
    }
    if (!put(one, text, length)) return 0;
    if (--one->left) {
        one->due_ns = gap_ns ? one->due_ns + gap_ns : 0;
        later(fd, one);
        return 1;
    }
    if (truth) fwrite(&one->record, sizeof one->record, 1, truth);
    if (one->closes && !one->blocked) return 0;
    return begin(one);
}

static int number_after(const char *text, const char *name, int otherwise) {
    const char *at = strstr(text, name);
    if (!at) return otherwise;
    for (at += strlen(name); *at == '"' || *at == ' ' || *at == ':'; at++) continue;
    return *at >= '0' && *at <= '9' ? atoi(at) : otherwise;
}

static int true_after(const char *text, const char *name) {
    const char *at = strstr(text, name);
    if (!at) return 0;
    for (at += strlen(name); *at == '"' || *at == ' ' || *at == ':'; at++) continue;
    return *at == 't';
}

/* Ids of a prompt, or words of a text. */
static int count_prompt(const char *body) {
    const char *at = strstr(body, "\"prompt\"");
    if (!at) at = strstr(body, "\"content\"");
    if (!at || !(at = strchr(at + 2, ':'))) return 1;
    for (at++; *at == ' '; at++) continue;
    int ids = *at == '[', found = 1;
    for (at++; *at && *at != (ids ? ']' : '"'); at++) found += *at == (ids ? ',' : ' ');
    return found;
}

static int answer(Connection *one, char *head, char *body, int64_t read_ns) {
    int fd = one->fd;
    one->closes = strcasestr(head, "\r\nconnection: close") != NULL;
    if (!strncmp(head, "GET ", 4)) {
        if (!strncmp(head + 4, "/v1/models", 10))
            return reply(one, "200 OK", "application/json",
                         "{\"object\":\"list\",\"data\":[{\"id\":\"known\",\"object\":\"model\",\"created\":1,"
                         "\"owned_by\":\"known\",\"max_model_len\":32768}]}");
        return reply(one, "200 OK", "text/plain", "ok");
    }
    one->chat = !!strstr(head, "/chat/completions ");
    if (!one->chat && !strstr(head, "/v1/completions ")) return reply(one, "404 Not Found", "text/plain", "no");
    int tokens = number_after(body, "\"max_tokens\"", number_after(body, "\"max_completion_tokens\"", 16));
    one->prompt_tokens = count_prompt(body);
    if (!true_after(body, "\"stream\"")) {
        char text[600];
        sprintf(text,
                "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",%s,\"choices\":[{\"index\":0,\"text\":\" the\","
                "\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,"
                "\"total_tokens\":%d,\"completion_tokens\":%d}}",
                COMMON, one->prompt_tokens, one->prompt_tokens + tokens, tokens);
        return reply(one, "200 OK", "application/json", text);
    }
    one->usage = true_after(body, "\"include_usage\"");
    one->left = tokens < 1 ? 1 : tokens;
    one->record = (Record){.read_ns = read_ns, .tokens = one->left, .connection = fd};
    if (ttft_ns && !put(one, HEAD, sizeof HEAD - 1)) return 0;
    one->due_ns = ttft_ns ? read_ns + ttft_ns : gap_ns ? read_ns : 0;
    if (!ttft_ns) return next_event(fd, one);
    later(fd, one);
    return 1;
}

/* Answer what lies whole in the buffer. Returns 0 when the connection is gone. */
static int begin(Connection *one) {
    one->answering = 0;
    while (one->in_len) {
        one->in[one->in_len] = 0;
        char *end = strstr(one->in, "\r\n\r\n");
        if (!end) return 1;
        char *said = strcasestr(one->in, "\r\ncontent-length:");
        size_t head = end + 4 - one->in, body = said && said < end ? strtoul(said + 17, NULL, 10) : 0;
        if (one->in_len < head + body) {
            if (strcasestr(one->in, "\r\nexpect: 100-continue")) return put(one, "HTTP/1.1 100 Continue\r\n\r\n", 25);
            return 1;
        }
        int64_t read_ns = now_ns();
        char kept = one->in[head + body];
        one->in[head + body] = 0;
        end[2] = 0;
        size_t left = one->in_len - head - body;
        one->in_len = 0; /* so that an answer that is whole at once does not begin the next one itself */
        int alive = answer(one, one->in, one->in + head, read_ns);
        one->in[head + body] = kept;
        memmove(one->in, one->in + head + body, left);
        one->in_len = left;
        if (!alive) return 0;
        if (one->answering) return 1;
    }
    return 1;
}

static int hear(Connection *one) {
    if (one->in_len + 1 >= one->in_room) one->in = realloc(one->in, one->in_room *= 2);
    ssize_t got = recv(one->fd, one->in + one->in_len, one->in_room - one->in_len - 1, 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    one->in_len += got;
    return one->answering ? 1 : begin(one);
}

static int drain(Connection *one) {
    ssize_t sent = send(one->fd, one->out + one->out_at, one->out_len - one->out_at, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN;
    one->out_at += sent;
    if (one->out_at < one->out_len) return 1;
    one->blocked = 0;
    watch(one->fd, EPOLLIN, EPOLL_CTL_MOD);
    return !(one->closes && !one->answering);
}

static void greet(void) {
    int fd, yes = 1;
    while ((fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MOST) exit(3);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        Connection *one = calloc(1, sizeof *one);
        one->fd = fd;
        one->in = malloc(one->in_room = 16384);
        all[fd] = one;
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void step(int fd) {
    Connection *one = all[fd];
    if (!next_event(fd, one)) forget(fd);
}

static void serve(void) {
    struct epoll_event events[EVENTS];
    while (!ended) {
        struct timespec wait = {.tv_sec = 1};
        if (ring_len) {
            wait.tv_sec = 0;
        } else if (heap_len) {
            int64_t left_ns = all[heap[0]]->due_ns - now_ns() - SPIN_NS;
            left_ns = left_ns < 0 ? 0 : left_ns > 1000000000 ? 1000000000 : left_ns;
            wait = (struct timespec){.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
        }
        int many = epoll_pwait2(poll_fd, events, EVENTS, &wait, NULL);
        for (int k = 0; k < many; k++) {
            int fd = events[k].data.fd;
            if (fd == listen_fd) greet();
            Connection *one = all[fd];
            if (!one) continue;
            int alive = 1;
            if (events[k].events & EPOLLOUT) alive = drain(one);
            if (alive && events[k].events & ~(uint32_t)EPOLLOUT) alive = hear(one);
            if (!alive) {
                if (one->answering) { /* still in heap or ring: shut it, and let its next write find that out */
                    shutdown(fd, SHUT_RDWR);
                    watch(fd, 0, EPOLL_CTL_DEL);
                    one->blocked = 0;
                } else {
                    forget(fd);
                }
            }
        }
        for (int turn = ring_len; turn > 0; turn--) {
            int fd = ring[ring_at];
            ring_at = (ring_at + 1) % MOST, ring_len--;
            step(fd);
        }
        if (heap_len) {
            int64_t at_ns = now_ns();
            for (int most = 256; most && heap_len && all[heap[0]]->due_ns <= at_ns; most--) step(pop());
        }
    }
}

static void stop(int number) {
    (void)number;
    ended = 1;
}

int main(int count, char **words) {
    int port = 0, yes = 1;
    for (int k = 1; k + 1 < count; k += 2) {
        if (!strcmp(words[k], "--port")) port = atoi(words[k + 1]);
        else if (!strcmp(words[k], "--ttft-us")) ttft_ns = atoll(words[k + 1]) * 1000;
        else if (!strcmp(words[k], "--gap-us")) gap_ns = atoll(words[k + 1]) * 1000;
        else if (!strcmp(words[k], "--truth")) truth = fopen(words[k + 1], "wb");
        else return fprintf(stderr, "answerer: %s: unknown\n", words[k]), 2;
    }
    if (truth) setvbuf(truth, NULL, _IOFBF, 1 << 20);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    signal(SIGPIPE, SIG_IGN);
    make_events();
    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listen_fd, (struct sockaddr *)&address, sizeof address) || listen(listen_fd, 4096)) {
        return perror("answerer"), 1;
    }
    getsockname(listen_fd, (struct sockaddr *)&address, &length);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch(listen_fd, EPOLLIN, EPOLL_CTL_ADD);
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    serve();
    if (truth) fclose(truth);
    return 0;
}
