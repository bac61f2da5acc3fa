#include "cli/wsjoin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/try.h"
#include "cli/client.h"
#include "http/join.h"
#include "http/uri.h"

static const usec_t OPEN_TIMEOUT = 15 * USEC_PER_SEC;

enum rc wsjoin_url(const struct client *c, const char *plural, const char *ns, const char *name,
		   const char *path, char **out, struct err *err)
{
	struct sbuf b = SBUF_INIT(LIMIT_URL_BYTES);
	size_t n;

	sbuf_addf(&b, "%s/apis/subresources.kubevirt.io/v1/namespaces/", client_server(c));
	http_uri_escape(&b, ns ? ns : client_ns(c));
	sbuf_addf(&b, "/%s/", plural);
	http_uri_escape(&b, name);
	sbuf_adds(&b, path);
	enum rc rc = sbuf_take(&b, out, &n);

	return rc ? err_set(err, rc, "cannot make the URL") : RC_OK;
}

enum rc wsjoin_connect(struct http_join **out, struct client *c, const char *plural, const char *ns,
		       const char *name, const char *path, const struct http_join_ops *ops,
		       void *arg, struct err *err)
{
	CLEANUP(mem_freep) char *url = NULL;
	const struct http_join_config config = {.ops = ops,
						.arg = arg,
						.protocol = "plain.kubevirt.io",
						.last_words = USEC_INFINITY};

	TRY(wsjoin_url(c, plural, ns, name, path, &url, err));
	return http_join_connect(client_http(c), out, url, OPEN_TIMEOUT, &config, err);
}

enum rc wsjoin_listen(int type, const char *address, uint16_t *port, int *fd, struct err *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port)};
	CLEANUP(fd_closep) int s = -1;
	socklen_t n = sizeof(a);
	bool is_stream = type == SOCK_STREAM;
	int on = 1;

	if (inet_pton(AF_INET, address, &a.sin_addr) != 1)
		return err_set(err, RC_INVALID, "--address: '%s' is not an IPv4 address", address);
	s = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Of UDP it would let others have the same port. */
	if (s < 0 || (is_stream && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0) ||
	    bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || (is_stream && listen(s, 64) < 0) ||
	    getsockname(s, (struct sockaddr *)&a, &n) < 0)
		return err_set_sys(err, errno, "cannot listen at %s:%u", address, *port);
	*port = ntohs(a.sin_port);
	*fd = STEAL_FD(s);
	return RC_OK;
}
