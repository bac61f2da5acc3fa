#include "virt/node/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sbuf.h"
#include "base/str.h"
#include "json/json.h"
#include "virt/node/imgref.h"
#include "virt/node/imgunpack.h"
#include "virt/node/jail.h"
#include "virt/node/oci.h"

#define SKOPEO "/usr/bin/skopeo"

enum { COPY_CHUNK = 1024 * 1024, KEY_CAP = 20 };

/* A pull in progress: everything lives below tmp and goes with it. */
struct pull {
	const struct image_store *store;
	const struct image_want *want;
	struct imgref ref;
	char *tmp;	/* "<dir>/tmp-…" */
	int src_fd;	/* folder that holds the blobs */
	bool is_layout; /* blobs/sha256/<hex>, else <hex> (skopeo's dir:) */
	char digest[72];
	struct oci_manifest manifest;
};

unsigned image_queue(const char *ref)
{
	return 16 + (unsigned)(str_hash(ref, strlen(ref)) % 8);
}

enum image_policy image_policy_of(const char *name, const char *ref)
{
	if (str_eq(name, "Always"))
		return IMAGE_ALWAYS;
	if (str_eq(name, "Never"))
		return IMAGE_NEVER;
	if (!str_eq(name, "IfNotPresent") && str_has_suffix(ref, ":latest"))
		return IMAGE_ALWAYS;
	return IMAGE_IF_NOT_PRESENT;
}

void image_got_fini(struct image_got *g)
{
	g->id = mem_free(g->id);
	for (size_t i = 0; i < g->n_files; i++) {
		g->files[i].path = mem_free(g->files[i].path);
		g->files[i].local = mem_free(g->files[i].local);
	}
	g->n_files = 0;
}

enum rc image_store_open(const struct image_store *s, struct err *err)
{
	CLEANUP(mem_freep) char *refs = mem_printf("%s/refs", s->dir);

	if (!refs)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = file_mkdir_p(refs, 0711, err);

	if (rc)
		return rc;
	DIR *d = opendir(s->dir);

	if (!d)
		return err_set_sys(err, errno, "cannot list '%s'", s->dir);
	for (struct dirent *e; !rc && (e = readdir(d));) {
		if (!str_has_prefix(e->d_name, "tmp-"))
			continue;
		CLEANUP(mem_freep) char *p = mem_printf("%s/%s", s->dir, e->d_name);

		rc = p ? file_remove_tree(p, err) : err_set(err, RC_NOMEM, "out of memory");
	}
	closedir(d);
	return rc;
}

/* --- what is already here --- */

static void want_key(const struct image_want *w, char out[KEY_CAP])
{
	uint64_t h = 0;

	for (const char *const *p = w->wanted; *p; p++)
		h = h * 31 + str_hash(*p, strlen(*p));
	(void)snprintf(out, KEY_CAP, "%016llx", (unsigned long long)h);
}

static char *final_dir(const struct image_store *s, const struct image_want *w, const char *digest)
{
	char key[KEY_CAP];

	want_key(w, key);
	return mem_printf("%s/sha256-%s/%s", s->dir, digest + 7, key);
}

static enum rc add_file(struct image_got *g, const char *dir, const char *path,
			const struct json *j)
{
	struct image_file *f = &g->files[g->n_files];
	const char *name = js_get_str(j, "file");

	if (g->n_files >= IMAGE_FILES_MAX || !name || strchr(name, '/'))
		return RC_INVALID;
	f->path = mem_strdup(path);
	f->local = mem_printf("%s/%s", dir, name);
	f->bytes = (uint64_t)js_get_int(j, "bytes", 0);
	g->n_files++;
	return f->path && f->local ? RC_OK : RC_NOMEM;
}

/* RC_NOT_FOUND when this image has not been unpacked for these files yet. */
static enum rc load_cached(const struct image_store *s, const struct image_want *w,
			   const struct imgref *ref, const char *digest, struct image_got *out,
			   struct err *err)
{
	CLEANUP(mem_freep) char *dir = final_dir(s, w, digest);
	CLEANUP(mem_freep) char *path = dir ? mem_printf("%s/files.json", dir) : NULL;
	CLEANUP(mem_freep) char *text = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	size_t n = 0;

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = file_read(path, JAIL_OUTPUT_MAX, &text, &n, err);

	if (!rc)
		rc = js_parse(text, n, &j, err);
	if (rc)
		return rc;
	(void)snprintf(out->digest, sizeof(out->digest), "%s", digest);
	out->id = imgref_pinned(ref, digest);
	rc = out->id ? RC_OK : RC_NOMEM;
	JS_FOREACH(it, j)
		if (!rc)
			rc = add_file(out, dir, it.key, it.value);
	if (rc) {
		image_got_fini(out);
		return err_set(err, rc, "cannot read '%s'", path);
	}
	return RC_OK;
}

static char *ref_path(const struct image_store *s, const char *ref)
{
	return mem_printf("%s/refs/%016llx", s->dir,
			  (unsigned long long)str_hash(ref, strlen(ref)));
}

/* The digest that this reference had when it was last resolved here; false: never. */
static bool known_digest(const struct image_store *s, const char *ref, char out[72])
{
	CLEANUP(mem_freep) char *path = ref_path(s, ref);
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;

	if (!path || file_read(path, 4096, &text, &n, NULL))
		return false;
	char *blank = strchr(text, ' ');

	if (!blank || strcmp(blank + 1, ref) != 0)
		return false;
	*blank = '\0';
	if (!imgref_is_digest(text))
		return false;
	(void)snprintf(out, 72, "%s", text);
	return true;
}

static void remember_digest(const struct image_store *s, const char *ref, const char *digest)
{
	CLEANUP(mem_freep) char *path = ref_path(s, ref);
	CLEANUP(mem_freep) char *text = mem_printf("%s %s", digest, ref);

	/* Not kept: the next start asks the registry again. */
	if (path && text)
		ignore_rc(file_write_durable(path, text, strlen(text), 0600, NULL));
}

/* --- reading from the source --- */

static enum rc digest_of(const void *bytes, size_t n, char out[72], struct err *err)
{
	uint8_t sum[32];

	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, n, sum) < 0)
		return err_set(err, RC_IO, "cannot compute a digest");
	(void)snprintf(out, 72, "sha256:");
	str_hex(sum, sizeof(sum), out + 7);
	return RC_OK;
}

static enum rc read_small(int dir_fd, const char *path, char **out, size_t *n, struct err *err)
{
	CLEANUP(sbuf_fini) struct sbuf b = SBUF_INIT(OCI_JSON_MAX);
	CLEANUP(fd_closep) int fd = -1;
	char chunk[16384];
	enum rc rc = file_open_beneath(dir_fd, path, O_RDONLY | O_NONBLOCK, 0, &fd, err);
	struct stat st;

	if (rc)
		return rc;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, RC_INVALID, "'%s' is not a regular file", path);
	for (ssize_t k; (k = read(fd, chunk, sizeof(chunk))) != 0;) {
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_set_sys(err, errno, "cannot read '%s'", path);
		sbuf_add(&b, chunk, (size_t)k);
	}
	rc = sbuf_take(&b, out, n);
	return rc ? err_set(err, rc, "'%s' is too large", path) : RC_OK;
}

static enum rc read_json(int dir_fd, const char *path, const char *digest, struct json **out,
			 char actual[72], struct err *err)
{
	CLEANUP(mem_freep) char *text = NULL;
	size_t n = 0;
	enum rc rc = read_small(dir_fd, path, &text, &n, err);

	if (!rc)
		rc = digest_of(text, n, actual, err);
	if (!rc && digest && strcmp(digest, actual) != 0)
		rc = err_set(err, RC_INVALID, "'%s' does not have the digest it is named by", path);
	if (!rc)
		rc = js_parse(text, n, out, err);
	return rc;
}

static void blob_path(const struct pull *p, const char *digest, char out[96])
{
	if (p->is_layout)
		oci_blob_path(digest, out);
	else
		(void)snprintf(out, 96, "%s", digest + 7);
}

/* Copies from to to, at most as many bytes as the manifest says, and compares the digest. */
static enum rc copy_hashed(int from, int to, const struct oci_descriptor *d, struct err *err)
{
	CLEANUP(mem_freep) uint8_t *chunk = mem_alloc(COPY_CHUNK);
	gnutls_hash_hd_t h = NULL;
	uint8_t sum[32];
	char text[72] = "sha256:";
	uint64_t total = 0;
	enum rc rc = RC_OK;

	if (!chunk)
		return err_set(err, RC_NOMEM, "out of memory");
	if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
		return err_set(err, RC_NOMEM, "cannot compute a digest");
	for (ssize_t k; !rc && (k = read(from, chunk, COPY_CHUNK)) != 0;) {
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			rc = err_set_sys(err, errno, "cannot read layer %s", d->digest);
		else if ((total += (uint64_t)k) > d->bytes)
			rc = err_set(err, RC_INVALID, "layer %s is larger than the manifest says",
				     d->digest);
		else if (gnutls_hash(h, chunk, (size_t)k) < 0)
			rc = err_set(err, RC_IO, "cannot compute a digest");
		else
			rc = file_write_all(to, chunk, (size_t)k, err);
	}
	gnutls_hash_deinit(h, sum);
	str_hex(sum, sizeof(sum), text + 7);
	if (!rc && strcmp(text, d->digest) != 0)
		rc = err_set(err, RC_INVALID, "layer %s does not have its digest", d->digest);
	return rc;
}

/* Copies a blob into our own folder while hashing it: what is unpacked is what was checked. */
static enum rc copy_blob(const struct pull *p, const struct oci_descriptor *d, int *out,
			 struct err *err)
{
	CLEANUP(mem_freep) char *own = mem_printf("%s/blob-%s", p->tmp, d->digest + 7);
	CLEANUP(fd_closep) int from = -1;
	CLEANUP(fd_closep) int to = -1;
	char path[96];

	if (!own)
		return err_set(err, RC_NOMEM, "out of memory");
	blob_path(p, d->digest, path);
	enum rc rc = file_open_beneath(p->src_fd, path, O_RDONLY | O_NONBLOCK, 0, &from, err);

	if (rc)
		return rc;
	to = open(own, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0 && errno == EEXIST) { /* the same layer twice in one image */
		*out = open(own, O_RDONLY | O_CLOEXEC);
		return *out < 0 ? err_set_sys(err, errno, "cannot open '%s'", own) : RC_OK;
	}
	if (to < 0)
		return err_set_sys(err, errno, "cannot create '%s'", own);
	rc = copy_hashed(from, to, d, err);
	if (!rc && lseek(to, 0, SEEK_SET) < 0)
		rc = err_set_sys(err, errno, "cannot rewind a layer");
	if (!rc)
		*out = STEAL_FD(to);
	return rc;
}

/* --- where images come from --- */

static bool is_listed(const char *const *list, const char *host)
{
	for (; list && *list; list++)
		if (strcmp(*list, host) == 0)
			return true;
	return false;
}

static enum rc run_skopeo(struct pull *p, const char *work, struct err *err)
{
	static const char *const env[] = {"HOME=/tmp", "TMPDIR=/tmp", "XDG_RUNTIME_DIR=/tmp",
					  "PATH=/usr/bin:/bin", NULL};
	CLEANUP(mem_freep) char *src = imgref_skopeo_source(&p->ref);
	const char *argv[20];
	size_t n = 0;

	if (!src)
		return err_set(err, RC_NOMEM, "out of memory");
	argv[n++] = SKOPEO;
	argv[n++] = "--insecure-policy"; /* no signature policy: the digest is what counts */
	argv[n++] = "--override-os";
	argv[n++] = "linux";
	argv[n++] = "--override-arch";
	argv[n++] = "amd64";
	argv[n++] = "copy";
	argv[n++] = "--quiet";
	if (is_listed(p->store->insecure, p->ref.host))
		argv[n++] = "--src-tls-verify=false";
	if (p->want->auth_json) {
		argv[n++] = "--src-authfile";
		argv[n++] = "/tmp/auth.json";
	}
	argv[n++] = src;
	argv[n++] = "dir:/tmp/image"; /* keeps the manifest's bytes, and so its digest */
	argv[n] = NULL;
	struct jail j = {.argv = argv,
			 .env = env,
			 .uid = JAIL_UID,
			 .has_network = true,
			 .work_dir = work,
			 .timeout = p->store->timeout,
			 .file_bytes_max = p->store->bytes_max};

	return jail_run(&j, NULL, err);
}

/* A folder that only the jail's uid may enter. */
static enum rc make_jail_dir(const char *path, struct err *err)
{
	if (mkdir(path, 0700) < 0 || chown(path, JAIL_UID, JAIL_UID) < 0)
		return err_set_sys(err, errno, "cannot make '%s'", path);
	return RC_OK;
}

static enum rc write_auth(const char *work, const char *text, struct err *err)
{
	CLEANUP(mem_freep) char *path = mem_printf("%s/auth.json", work);

	if (!path)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = file_write_durable(path, text, strlen(text), 0600, err);

	if (!rc && chown(path, JAIL_UID, JAIL_UID) < 0)
		rc = err_set_sys(err, errno, "cannot hand over '%s'", path);
	return rc;
}

static enum rc pull_registry(struct pull *p, struct err *err)
{
	CLEANUP(mem_freep) char *work = mem_printf("%s/pull", p->tmp);
	CLEANUP(mem_freep) char *image = mem_printf("%s/pull/image", p->tmp);
	CLEANUP(js_unrefp) struct json *j = NULL;

	if (!work || !image)
		return err_set(err, RC_NOMEM, "out of memory");
	if (p->store->allowed && !is_listed(p->store->allowed, p->ref.host))
		return err_set(err, RC_FORBIDDEN, "registry '%s' is not allowed on this node",
			       p->ref.host);
	enum rc rc = make_jail_dir(work, err);

	if (!rc && p->want->auth_json)
		rc = write_auth(work, p->want->auth_json, err);
	if (!rc)
		rc = run_skopeo(p, work, err);
	if (rc)
		return rc;
	p->src_fd = open(image, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (p->src_fd < 0)
		return err_set_sys(err, errno, "cannot open the pulled image");
	rc = read_json(p->src_fd, "manifest.json", p->ref.digest, &j, p->digest, err);
	return rc ? rc : oci_manifest_read(j, &p->manifest, err);
}

/* Follows index.json, and one nested index, to a manifest. */
static enum rc read_layout(struct pull *p, struct err *err)
{
	CLEANUP(js_unrefp) struct json *index = NULL;
	CLEANUP(js_unrefp) struct json *j = NULL;
	struct oci_descriptor d;
	char path[96], sum[72];
	enum rc rc = read_json(p->src_fd, "index.json", NULL, &index, sum, err);

	if (rc)
		return rc;
	rc = oci_choose(index, p->ref.digest ? NULL : p->ref.tag, p->ref.digest, &d, err);
	if (rc == RC_NOT_FOUND && p->ref.digest) {
		/* Pinned below a nested index: the digest alone names the blob. */
		(void)snprintf(d.digest, sizeof(d.digest), "%s", p->ref.digest);
		d.is_index = false;
		rc = RC_OK;
	}
	for (int depth = 0; !rc && depth < 2; depth++) {
		j = js_unref(j);
		oci_blob_path(d.digest, path);
		rc = read_json(p->src_fd, path, d.digest, &j, p->digest, err);
		if (rc || !d.is_index)
			break;
		rc = depth ? err_set(err, RC_INVALID, "the image index is nested too deeply")
			   : oci_choose(j, NULL, NULL, &d, err);
	}
	return rc ? rc : oci_manifest_read(j, &p->manifest, err);
}

static enum rc open_folder(struct pull *p, struct err *err)
{
	const char *root = p->store->oci_root;
	const char *path = p->ref.place;

	if (!root)
		return err_set(err, RC_FORBIDDEN, "'oci:' images are not allowed on this node");
	size_t n = strlen(root);

	while (n && root[n - 1] == '/')
		n--;
	if (*path == '/') {
		if (strncmp(path, root, n) != 0 || path[n] != '/')
			return err_set(err, RC_FORBIDDEN, "'oci:' images must lie below '%s'",
				       root);
		while (path[n] == '/')
			path++;
		path += n;
	}
	CLEANUP(fd_closep) int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (root_fd < 0)
		return err_set_sys(err, errno, "cannot open '%s'", root);
	if (!file_open_beneath(root_fd, path, O_RDONLY | O_DIRECTORY, 0, &p->src_fd, NULL))
		return RC_OK;
	/* Told as the user wrote it, not as it is below the root. */
	return err_set_sys(err, errno, "cannot open the folder '%s' on this node", p->ref.place);
}

static enum rc pull_folder(struct pull *p, struct err *err)
{
	p->is_layout = true;
	enum rc rc = open_folder(p, err);

	return rc ? rc : read_layout(p, err);
}

/* --- unpacking --- */

static enum rc run_unpack(struct pull *p, const int *fds, const char *out_dir, struct sbuf *out,
			  struct err *err)
{
	const char *argv[8 + IMAGE_FILES_MAX];
	char layers[24], bytes[24];
	size_t n = 0;

	(void)snprintf(layers, sizeof(layers), "%zu", p->manifest.n_layers);
	(void)snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)p->store->bytes_max);
	argv[n++] = p->store->self_exe;
	argv[n++] = IMAGE_UNPACK_ARG;
	argv[n++] = layers;
	argv[n++] = bytes;
	for (const char *const *w = p->want->wanted; *w && n < ARRAY_SIZE(argv) - 1; w++)
		argv[n++] = *w;
	argv[n] = NULL;
	struct jail j = {.argv = argv,
			 .uid = JAIL_UID,
			 .work_dir = out_dir,
			 .fds = fds,
			 .n_fds = p->manifest.n_layers,
			 .timeout = p->store->timeout,
			 .file_bytes_max = p->store->bytes_max,
			 .memory_bytes_max = GIB,
			 .out = out};

	return jail_run(&j, NULL, err);
}

/* The jail's files become root's and read-only; anything but plain single-link files is refused. */
static enum rc own_files(const char *dir, const struct json *found, struct err *err)
{
	CLEANUP(fd_closep) int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir_fd < 0 || fchown(dir_fd, 0, 0) < 0 || fchmod(dir_fd, 0711) < 0)
		return err_set_sys(err, errno, "cannot take over '%s'", dir);
	JS_FOREACH(it, found) {
		CLEANUP(fd_closep) int fd = -1;
		struct stat st;
		const char *name = js_get_str(it.value, "file");
		enum rc rc =
			name ? file_open_beneath(dir_fd, name, O_RDONLY | O_NONBLOCK, 0, &fd, err)
			     : err_set(err, RC_INVALID, "the unpacker's answer makes no sense");

		if (rc)
			return rc;
		if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
			return err_set(err, RC_INVALID, "the unpacked '%s' is not a plain file",
				       it.key);
		if (fchown(fd, 0, 0) < 0 || fchmod(fd, 0444) < 0)
			return err_set_sys(err, errno, "cannot take over the unpacked files");
	}
	return RC_OK;
}

static enum rc publish(struct pull *p, const char *out_dir, const struct sbuf *text,
		       struct err *err)
{
	CLEANUP(js_unrefp) struct json *found = NULL;
	CLEANUP(mem_freep) char *list = mem_printf("%s/files.json", out_dir);
	CLEANUP(mem_freep) char *final = final_dir(p->store, p->want, p->digest);
	CLEANUP(mem_freep) char *parent = mem_printf("%s/sha256-%s", p->store->dir, p->digest + 7);

	if (!list || !final || !parent)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = js_parse(sbuf_str(text), text->n, &found, err);

	if (!rc)
		rc = own_files(out_dir, found, err);
	if (!rc)
		rc = file_write_durable(list, sbuf_str(text), text->n, 0444, err);
	if (!rc)
		rc = file_mkdir_p(parent, 0711, err);
	if (!rc && rename(out_dir, final) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		rc = err_set_sys(err, errno, "cannot rename '%s'", out_dir);
	return rc;
}

static enum rc unpack(struct pull *p, struct err *err)
{
	CLEANUP(mem_freep) char *out_dir = mem_printf("%s/out", p->tmp);
	CLEANUP(sbuf_fini) struct sbuf text = SBUF_INIT(JAIL_OUTPUT_MAX);
	int fds[OCI_LAYERS_MAX];
	size_t n = 0;

	if (!out_dir)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = make_jail_dir(out_dir, err);

	for (; !rc && n < p->manifest.n_layers; n++) {
		fds[n] = -1;
		rc = copy_blob(p, &p->manifest.layers[n], &fds[n], err);
	}
	if (!rc)
		rc = run_unpack(p, fds, out_dir, &text, err);
	for (size_t i = 0; i < n; i++)
		fd_close(fds[i]);
	return rc ? rc : publish(p, out_dir, &text, err);
}

static enum rc pull(const struct image_store *s, const struct image_want *w, struct imgref *ref,
		    char digest[72], struct err *err)
{
	struct pull p = {.store = s, .want = w, .ref = *ref, .src_fd = -1};

	p.tmp = mem_printf("%s/tmp-%016llx", s->dir, (unsigned long long)rand_u64());
	if (!p.tmp)
		return err_set(err, RC_NOMEM, "out of memory");
	enum rc rc = file_mkdir_p(p.tmp, 0711, err);

	if (!rc)
		rc = ref->kind == IMGREF_FOLDER ? pull_folder(&p, err) : pull_registry(&p, err);
	if (!rc) {
		CLEANUP(mem_freep) char *have = final_dir(s, w, p.digest);
		CLEANUP(mem_freep) char *list = have ? mem_printf("%s/files.json", have) : NULL;

		if (!list || access(list, F_OK) < 0)
			rc = unpack(&p, err);
	}
	if (!rc)
		(void)snprintf(digest, 72, "%s", p.digest);
	fd_close(p.src_fd);
	ignore_rc(file_remove_tree(p.tmp, NULL)); /* the next start removes what is left */
	mem_free(p.tmp);
	return rc;
}

static enum rc fetch(const struct image_store *s, const struct image_want *w, struct imgref *ref,
		     struct image_got *out, struct err *err)
{
	char digest[72];
	bool known = true;

	if (ref->digest)
		(void)snprintf(digest, sizeof(digest), "%s", ref->digest);
	else
		known = known_digest(s, w->ref, digest);
	if (known && (ref->digest || w->policy != IMAGE_ALWAYS) &&
	    load_cached(s, w, ref, digest, out, NULL) == RC_OK)
		return RC_OK;
	if (w->policy == IMAGE_NEVER)
		return err_set(
			err, RC_NOT_FOUND,
			"the image is not present on this node and its pull policy is Never");
	enum rc rc = pull(s, w, ref, digest, err);

	if (rc)
		return rc;
	remember_digest(s, w->ref, digest);
	return load_cached(s, w, ref, digest, out, err);
}

enum rc image_fetch(const struct image_store *s, const struct image_want *w, struct image_got *out,
		    struct err *err)
{
	struct imgref ref = {0};
	struct image_got got = {0};
	enum rc rc = imgref_parse(w->ref, &ref, err);

	if (!rc)
		rc = fetch(s, w, &ref, &got, err);
	imgref_fini(&ref);
	if (rc)
		return rc;
	*out = got;
	return RC_OK;
}

enum rc image_pick_disk(const struct image_got *g, const char *path, const struct image_file **out,
			struct err *err)
{
	if (path) {
		while (*path == '/')
			path++;
		for (size_t i = 0; i < g->n_files; i++)
			if (strcmp(g->files[i].path, path) == 0) {
				*out = &g->files[i];
				return RC_OK;
			}
		return err_set(err, RC_INVALID, "no file '/%s' in the image", path);
	}
	if (!g->n_files)
		return err_set(err, RC_INVALID, "no file found in folder /disk, no disk present");
	if (g->n_files > 1)
		return err_set(
			err, RC_INVALID,
			"more than one file found in folder /disk, only one disk is allowed");
	*out = &g->files[0];
	return RC_OK;
}
