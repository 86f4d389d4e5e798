package nodeimage

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// Image is a node image in the cache.
type Image struct {
	// Dir is the cache entry; its last element is the image's key.
	Dir string `json:"-"`
	// Suite and Kernel of the image.
	Suite  string `json:"suite"`
	Kernel string `json:"kernel"`
	// Sizes of the files in bytes, by name, to detect a truncated cache entry.
	Sizes map[string]int64 `json:"sizes"`
}

const (
	ImageKernel = "vmlinux"
	ImageInitrd = "initrd.img"
	ImageRoot   = "root.erofs"
)

var imageFileNames = []string{ImageKernel, ImageInitrd, ImageRoot}

func (i *Image) File(name string) string { return filepath.Join(i.Dir, name) }

// Spec is everything that determines an image's content.
type Spec struct {
	Suite   string
	Mirror  string
	Keyring string
	// Lustre are the files of Lustre's packages, if the nodes have it.
	Lustre       []string
	LustreDigest string
	RDMA         bool
}

// Packages returns the packages to install from the archive.
func (s Spec) Packages() []string {
	p := nodePackages(s.Suite)
	if s.RDMA {
		p[slices.Index(p, cloudKernel)] = standardKernel
		p = append(p, "rdma-core", "perftest")
	}
	// Modules of Lustre fit one kernel, and the archive soon has a newer one.
	if slices.ContainsFunc(s.Lustre, isKernelPackage) {
		p = slices.DeleteFunc(p, func(name string) bool { return name == cloudKernel || name == standardKernel })
	}
	return p
}

// recipe extends one of the two recipes with the image's own additions.
func (s Spec) recipe(of recipe) recipe {
	if s.RDMA {
		files, links := softRoCE()
		maps.Copy(of.Files, files)
		maps.Copy(of.Links, links)
	}
	return of
}

// baseKey is the cache key of the unpacked packages, key that of the finished image.
func (s Spec) baseKey() string {
	parts := []any{"base", s.Suite, s.Mirror, s.Packages(), lists()["unpack-excludes"]}
	if s.LustreDigest != "" {
		parts = append(parts, s.LustreDigest)
	}
	return hashOf(parts...)
}

func (s Spec) Key() string {
	return hashOf(s.baseKey(), recipeVersion, lists()["image-excludes"], s.recipe(fastRecipe()), lists()["modules"], initScript)
}

func hashOf(parts ...any) string {
	// JSON sorts the keys of maps, so equal content gives equal bytes.
	b, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings, numbers and maps of them always encode
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))[:16]
}

// CacheDir is the directory of the cached images.
func CacheDir() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "mortar", "images"), nil
}

// Cached returns the image if the cache has it complete, else nil.
func Cached(dir string) *Image {
	img := &Image{Dir: dir}
	if tool.LoadJSON(img.File("manifest.json"), img) != nil {
		return nil
	}
	for _, name := range imageFileNames {
		st, err := os.Stat(img.File(name))
		if err != nil || st.Size() == 0 || st.Size() != img.Sizes[name] {
			return nil
		}
	}
	return img
}

// Ensure returns the node image, and builds it if the cache does not have it.
// If two processes need the same image, only one builds it.
func Ensure(ctx context.Context, spec Spec, p *tool.Steps) (*Image, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	final := filepath.Join(cache, spec.Key())
	if img := Cached(final); img != nil {
		return img, nil
	}
	if err := building(ctx, cache, func(work string) error {
		if Cached(final) != nil {
			return nil
		}
		return makeImage(ctx, spec, cache, work, final, p)
	}); err != nil {
		return nil, err
	}
	if img := Cached(final); img != nil {
		return img, nil
	}
	return nil, fmt.Errorf("%s: the image is gone as soon as it was built", final)
}

// building calls fn with an empty work directory, under a lock that keeps other
// processes from building in the cache.
func building(ctx context.Context, cache string, fn func(work string) error) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	unlock, err := tool.LockFile(ctx, filepath.Join(cache, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// Remove the work of a killed build. We hold the lock, so no process uses it.
	if err := tool.RemoveAll(filepath.Join(cache, "building-*")); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "building-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := fn(work); err != nil {
		return err
	}
	return prune(cache, time.Now().Add(-keepUnused))
}

// ensureBase returns the tar file of the packages.
func ensureBase(ctx context.Context, spec Spec, cache, work string, p *tool.Steps) (string, error) {
	base := filepath.Join(cache, "base-"+spec.baseKey()+".tar")
	if _, err := os.Stat(base); err == nil {
		return base, nil
	}
	return base, p.Step("packages", spec.Suite+" from "+spec.Mirror, func() error {
		return bootstrap(ctx, spec, work, base)
	})
}

// makeImage builds the image in the work directory and moves it to final.
func makeImage(ctx context.Context, spec Spec, cache, work, final string, p *tool.Steps) error {
	base, err := ensureBase(ctx, spec, cache, work, p)
	if err != nil {
		return err
	}
	img := &Image{Dir: filepath.Join(work, "out"), Suite: spec.Suite, Sizes: map[string]int64{}}
	if err := os.Mkdir(img.Dir, 0o755); err != nil {
		return err
	}
	if err := p.Step("image", "kernel, initramfs, root", func() error {
		return buildImage(ctx, base, filepath.Join(work, "root"), img, spec)
	}); err != nil {
		return err
	}
	if err := tool.SaveJSON(img.File("manifest.json"), img); err != nil {
		return err
	}
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(img.Dir, final)
}

// keepUnused is how long an unused image stays in the cache.
const keepUnused = 30 * 24 * time.Hour

// prune removes the images and packages last used before a time. The caller holds
// the cache's lock.
func prune(cache string, before time.Time) error {
	entries, err := os.ReadDir(cache)
	for _, e := range entries {
		st, statErr := e.Info()
		if statErr == nil && !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), "building-") && st.ModTime().Before(before) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(cache, e.Name())))
		}
	}
	return err
}

// Used records the use of an image in its directory's time, which prune reads.
func (i *Image) Used() error { return touch(i.Dir) }

func touch(file string) error {
	now := time.Now()
	return os.Chtimes(file, now, now)
}

// bootstrap installs the packages into a tar file. mmdebstrap's temporary files are
// in the work directory.
func bootstrap(ctx context.Context, spec Spec, work, tar string) error {
	part := tar + ".part"
	defer os.Remove(part)
	// In a process namespace of its own: if we are killed, all its processes
	// are too, and its mounts vanish with its mount namespace.
	argv := []string{"env", "TMPDIR=" + work, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		"mmdebstrap", "--quiet", "--mode=root", "--format=tar", "--variant=minbase", "--components=main",
		"--include=" + strings.Join(append(spec.Packages(), spec.Lustre...), ","),
		`--aptopt=Apt::Install-Recommends "false"`,
	}
	for _, x := range lists()["unpack-excludes"] {
		argv = append(argv, "--dpkgopt=path-exclude="+x)
	}
	argv = append(argv, lustreHooks(spec.Lustre)...)
	if spec.Keyring != "" {
		argv = append(argv, "--keyring="+spec.Keyring)
	}
	argv = append(argv, spec.Suite, part, spec.Mirror)
	if err := tool.Run(ctx, argv...); err != nil {
		return err
	}
	return os.Rename(part, tar)
}

// unpack unpacks the installed packages into a root directory.
func unpack(ctx context.Context, base, root string) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	return tool.Run(ctx, "tar", "-xpf", base, "-C", root, "--exclude=./dev/*")
}

// buildImage makes the three files of the image from the packages.
func buildImage(ctx context.Context, base, root string, img *Image, spec Spec) error {
	if err := unpack(ctx, base, root); err != nil {
		return err
	}
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil {
		return err
	}
	if len(kernels) != 1 {
		return fmt.Errorf("the packages hold %d kernels, want one", len(kernels))
	}
	img.Kernel = strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	if spec.LustreDigest != "" {
		if err := lustreFits(root, img.Kernel); err != nil {
			return err
		}
	}
	bz, err := os.ReadFile(kernels[0])
	if err != nil {
		return err
	}
	elf, err := uncompressedKernel(ctx, bz)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(kernels[0]), err)
	}
	if err := os.WriteFile(img.File(ImageKernel), elf, 0o644); err != nil {
		return err
	}
	if err := uncompressModules(ctx, root, img.Kernel); err != nil {
		return err
	}
	if err := customize(ctx, root, spec.recipe(fastRecipe())); err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	initrd, err := buildInitrd(ctx, root, img.Kernel, busybox, root+".initrd")
	if err != nil {
		return err
	}
	if err := os.WriteFile(img.File(ImageInitrd), initrd, 0o644); err != nil {
		return err
	}
	// Not compressed: the image has 400 MB instead of 230, but an emulated node
	// reads it in a fraction of the time.
	argv := []string{"mkfs.erofs", "--quiet"}
	for _, x := range lists()["image-excludes"] {
		argv = append(argv, "--exclude-regex="+x)
	}
	if err := tool.Run(ctx, append(argv, img.File(ImageRoot), root)...); err != nil {
		return err
	}
	for _, name := range imageFileNames {
		st, err := os.Stat(img.File(name))
		if err != nil {
			return err
		}
		img.Sizes[name] = st.Size()
	}
	return nil
}

// uncompressModules uncompresses kernel modules: an emulated node then reads them
// faster.
func uncompressModules(ctx context.Context, root, kernel string) error {
	dir := filepath.Join(root, "lib/modules", kernel)
	for ext, unpack := range map[string]string{"xz": "xz -dq", "zst": "zstd -dq --rm", "gz": "gzip -dq"} {
		argv := append([]string{"find", dir, "-type", "f", "-name", "*.ko." + ext, "-exec"}, strings.Fields(unpack)...)
		if err := tool.Run(ctx, append(argv, "{}", "+")...); err != nil {
			return err
		}
	}
	left, err := tool.Output(ctx, nil, "find", dir, "-type", "f", "-name", "*.ko.*")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("kernel modules are compressed in an unknown way: %s", tool.LastLines(string(left), 5))
	}
	if err != nil {
		return err
	}
	return tool.Run(ctx, "chroot", root, "depmod", kernel)
}

// customize applies the recipe: units, rules and files.
func customize(ctx context.Context, root string, how recipe) error {
	const units = "etc/systemd/system"
	remove := []string{"etc/machine-id", "etc/hostname", "etc/resolv.conf", "etc/hosts", "etc/network/interfaces"}
	for _, u := range how.Disabled {
		remove = append(remove, filepath.Join(units, u))
	}
	for _, name := range remove {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	// Host keys are made per node, never shared by an image.
	if err := tool.RemoveAll(filepath.Join(root, "etc/ssh/ssh_host_*")); err != nil {
		return err
	}
	// place makes a file in the place of a package's, which may be a link to somewhere else.
	place := func(name string, write func(file string) error) error {
		file := filepath.Join(root, name)
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file), write(file))
	}
	links := maps.Clone(how.Links)
	for _, mask := range []struct {
		dir, ext string
		names    []string
	}{{units, "", how.Masked}, {"etc/systemd/system-generators", "", how.Generators}, {"etc/udev/rules.d", ".rules", how.Rules}} {
		for _, n := range mask.names {
			links[filepath.Join(mask.dir, n+mask.ext)] = "/dev/null"
		}
	}
	for name, text := range how.Files {
		if err := place(name, func(file string) error { return os.WriteFile(file, []byte(text), 0o644) }); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := place(name, func(file string) error { return os.Symlink(target, file) }); err != nil {
			return err
		}
	}
	// Compile the fence agents, which an emulated node would otherwise compile at
	// every call. The byte code does not depend on the files' times, which the
	// image may not keep.
	return tool.Run(ctx, "chroot", root, "python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash",
		"/usr/share/fence", "/usr/lib/python3/dist-packages")
}

// buildInitrd packs the first stage: a static busybox, the modules and /init. dir is a
// directory to put them together in.
func buildInitrd(ctx context.Context, root, kernel, busybox, dir string) ([]byte, error) {
	mods, err := modulesInOrder(ctx, root, kernel)
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{".", "bin", "dev", "proc", "sys", "m", "ro", "rw", "new"} {
		if err := os.Mkdir(at(d), 0o755); err != nil {
			return nil, err
		}
	}
	copied := map[string]string{"bin/busybox": busybox}
	insmod := make([]string, len(mods))
	for i, m := range mods {
		insmod[i] = path.Base(m)
		copied["m/"+insmod[i]] = filepath.Join(root, m)
	}
	for to, from := range copied {
		if err := tool.Run(ctx, "install", "-m", "755", from, at(to)); err != nil {
			return nil, err
		}
	}
	script := strings.ReplaceAll(initScript, "@MODULES@", strings.Join(insmod, " "))
	if err := errors.Join(unix.Mknod(at("dev/console"), unix.S_IFCHR|0o600, int(unix.Mkdev(5, 1))),
		os.Symlink("busybox", at("bin/sh")), os.WriteFile(at("init"), []byte(script), 0o755)); err != nil {
		return nil, err
	}
	names, err := tool.Output(ctx, nil, "find", dir, "-printf", `%P\n`) // parents before what is in them
	if err != nil {
		return nil, err
	}
	return tool.Output(ctx, names[1:], "cpio", "--quiet", "--create", "--format=newc", "--directory="+dir)
}

// modulesInOrder returns the files that the recipe names below root, and of those that they
// depend on, in the order of loading. It skips modules built into the kernel; an unknown
// module is an error.
func modulesInOrder(ctx context.Context, root, kernel string) ([]string, error) {
	argv := append([]string{"chroot", root, "modprobe", "--set-version", kernel, "--show-depends", "--all"}, lists()["modules"]...)
	out, err := tool.Output(ctx, nil, argv...)
	return insmodFiles(string(out)), err
}

// insmodFiles returns the files that modprobe(8) would load, each once.
func insmodFiles(said string) []string {
	var files []string
	for line := range strings.Lines(said) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "insmod" && !slices.Contains(files, f[1]) {
			files = append(files, f[1])
		}
	}
	return files
}
