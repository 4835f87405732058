/* handshake.c: the socket to outboard run, which sends the ring's memory and whose end of file
 * means the end of outboard run. Layer: session.
 *
 * The client sends 32 bytes: magic, u32 pid, u32 index of the lease, zeros. The answer is 64 bytes:
 * u32 status (0, else 1 + the outboard.Kind), u32 number of leases, u64 memory limit, u32 time in
 * ms after which outboard run declares a silent peer dead and closes the ring, u32 length of the
 * text that follows, zeros. The ring's descriptor comes with the answer's first byte. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HANDSHAKE_MS = 60000, TEXT_MAX = 4096, HIGH = 200 };

struct hello {
	char magic[8];
	uint32_t pid, lease;
	unsigned char zero[16];
};

struct answer {
	uint32_t status, leases;
	uint64_t memory_limit;
	uint32_t dead_after_ms, text_size;
	unsigned char zero[40];
};
_Static_assert(sizeof(struct hello) == 32 && sizeof(struct answer) == 64, "the handshake's layout is the wire's");

/* poll_now is poll without glibc's cancellation point: a thread cancelled here would remain the
 * leader. */
static int poll_now(struct pollfd *p, int ms) {
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
	return (int)syscall(SYS_ppoll, p, 1, &ts, NULL, 0);
}

/* raise_fd moves a descriptor to a high number: programs close or count low ones. */
static int raise_fd(int fd) {
	if (fd < 0)
		return fd;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static int connect_socket(const char *path, char *why, size_t why_size) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address.sun_path) {
		snprintf(why, why_size, "OUTBOARD_SOCKET is longer than a socket's path may be (%s)", path);
		return -1;
	}
	strcpy(address.sun_path, path);
	int fd = raise_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0) {
		snprintf(why, why_size, "no socket: %s", strerror(errno));
		return -1;
	}
	/* An interrupted connect of a unix socket has had no effect and can be repeated. */
	while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
		if (errno == EINTR)
			continue;
		snprintf(why, why_size, "nothing answers at %s (%s); is `outboard run` still running?", path, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

static int send_hello(int fd, uint32_t lease) {
	struct hello h = {.magic = {'O', 'B', 'S', 'E', 'S', 'S', '1', 0}, .pid = (uint32_t)getpid(), .lease = lease};
	for (size_t done = 0; done < sizeof h;) {
		ssize_t n = send(fd, (char *)&h + done, sizeof h - done, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

/* receive_fd stores the first descriptor of a message and closes any others. */
static void receive_fd(struct msghdr *m, int *memory) {
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (*memory < 0)
				*memory = fd;
			else
				close(fd);
		}
	}
}

/* read_exactly reads n bytes before the deadline. Returns 0, or an errno (END_OF_FILE for an end of
 * file). */
enum { END_OF_FILE = 0xdead00 };
static int read_exactly(int fd, void *to, size_t n, int64_t deadline, int *memory) {
	for (size_t done = 0; done < n;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline - now_ms();
		if (left <= 0)
			return ETIMEDOUT;
		if (poll_now(&p, (int)left) <= 0)
			continue;
		union {
			struct cmsghdr align;
			char room[CMSG_SPACE(4 * sizeof(int))];
		} control;
		struct iovec v = {(char *)to + done, n - done};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
		ssize_t k = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			return k < 0 ? errno : END_OF_FILE;
		receive_fd(&m, memory);
		done += (size_t)k;
	}
	return 0;
}

static void strip_control(char *text) {
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			*text = ' ';
}

/* read_refusal reads the text that follows an answer with an error status. */
static void read_refusal(int fd, const struct answer *a, int64_t deadline, char *why, size_t why_size) {
	char text[TEXT_MAX + 1] = "";
	size_t n = a->text_size < TEXT_MAX ? a->text_size : TEXT_MAX;
	int none = -1;
	if (read_exactly(fd, text, n, deadline, &none) != 0)
		text[0] = 0;
	if (none >= 0)
		close(none);
	strip_control(text);
	snprintf(why, why_size, "%s", text[0] ? text : "outboard run refused the session without a reason");
}

static int exchange_hello(int fd, uint32_t lease, struct answer *a, int *memory, char *why, size_t why_size) {
	int64_t deadline = now_ms() + HANDSHAKE_MS;
	int err = send_hello(fd, lease) != 0 ? errno : read_exactly(fd, a, sizeof *a, deadline, memory);
	if (err != 0) {
		snprintf(why, why_size, "outboard run does not answer (%s)", err == END_OF_FILE ? "it closed the connection" : strerror(err));
		return -1;
	}
	if (a->status != 0) {
		read_refusal(fd, a, deadline, why, why_size);
		return -1;
	}
	if (*memory < 0) {
		snprintf(why, why_size, "outboard run answered without a ring: its version may not be that of this library");
		return -1;
	}
	return 0;
}

int handshake(const char *path, uint32_t lease, int *memory, uint32_t *leases, uint64_t *limit, char *why, size_t why_size) {
	int saved = errno;
	*memory = -1;
	struct answer a;
	memset(&a, 0, sizeof a);
	int fd = connect_socket(path, why, why_size);
	if (fd >= 0 && exchange_hello(fd, lease, &a, memory, why, why_size) != 0) {
		close(fd);
		fd = -1;
	}
	if (fd < 0 && *memory >= 0)
		close(*memory);
	*leases = a.leases;
	*limit = a.memory_limit;
	errno = saved;
	return fd;
}

void socket_store(struct session *s, int fd) {
	struct stat st;
	s->socket = fd;
	if (fstat(fd, &st) == 0) {
		s->socket_dev = st.st_dev;
		s->socket_ino = st.st_ino;
	}
}

/* socket_is_ours returns 0 when the program has closed the descriptor, and its number may mean
 * another file. */
static int socket_is_ours(struct session *s) {
	struct stat st;
	return s->socket >= 0 && fstat(s->socket, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == s->socket_dev && st.st_ino == s->socket_ino;
}

int socket_alive(struct session *s) {
	int saved = errno, alive = 1;
	pthread_mutex_lock(&s->socket_lock);
	if (!socket_is_ours(s)) {
		s->socket = -1;
	} else {
		struct pollfd p = {.fd = s->socket, .events = POLLIN | POLLRDHUP};
		char byte;
		if (poll_now(&p, 0) > 0)
			alive = !(p.revents & (POLLERR | POLLHUP | POLLRDHUP)) &&
				syscall(SYS_recvfrom, s->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) != 0;
	}
	pthread_mutex_unlock(&s->socket_lock);
	errno = saved;
	return alive;
}

void socket_close(struct session *s) {
	int saved = errno;
	if (socket_is_ours(s))
		close(s->socket);
	s->socket = -1;
	errno = saved;
}
