package resource

import (
	"path"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
)

// LustrePackages are Lustre's packages for the kernel that a host runs. Modules of Lustre fit
// one release of the kernel only, so the kernel's packages are held with them: after an upgrade and a
// boot the host would be without Lustre.
type LustrePackages struct {
	Names []string // distro.KernelRelease in a name stands for the release
	// Instead are names that do as well, if all of them are there: one build may be of server and client.
	Instead []string `json:",omitempty"`
	// Files and where they are from, or a repository. Without both the packages must be installed.
	Files      []PackageFile `json:",omitempty"`
	Directory  string        `json:",omitempty"`
	Repository string        `json:",omitempty"` // address, suite and components, as in sources.list(5)
	Key        []byte        `json:",omitempty"` // OpenPGP, armoured or not
}

// PackageFile is a package on the administrator's machine.
type PackageFile struct {
	Name, Version string
	Path          string // on the administrator's machine
	SHA256        string // in hexadecimal
	Size          int64  // bytes
}

func (p *LustrePackages) Identity() (kind, id string) {
	return "lustre-packages", strings.Join(p.Names, " ")
}

// Diff refuses a host whose kernel the packages do not fit, and one that has no packages if nothing
// says where they come from.
func (p *LustrePackages) Diff(sys Look) ([]Action, error) {
	d := sys.Distro()
	h := &lustreHost{
		LustrePackages: p, d: d, kernel: strings.TrimSpace(sys.Must("/proc/sys/kernel/osrelease")),
		have: installed(sys, d.Manager), versions: versions(sys, d.Manager, d.Packages.LustreHeld),
	}
	missing := h.missing(p.Names)
	if len(missing) > 0 && len(p.Instead) > 0 && len(h.missing(p.Instead)) == 0 {
		missing = nil
	}
	if len(missing) == 0 {
		return h.hold(sys), nil
	}
	return h.install(sys, missing), nil
}

// lustreHost is what a host has of Lustre's packages.
type lustreHost struct {
	*LustrePackages
	d        distro.Distro
	kernel   string
	have     map[string]bool   // names, also virtual ones
	versions map[string]string // by name, of packages that belong to Lustre or the kernel
}

// missing are those of names, with the kernel's release filled in, that the host does not have.
func (h *lustreHost) missing(names []string) []string {
	var out []string
	for _, n := range names {
		n = h.named(n)
		if !h.have[n] || n == h.d.Packages.LustreE2fsprogs && !lustrePatches(h.versions[n]) {
			out = append(out, n)
		}
	}
	return out
}

// wanted says what is special about a missing package.
func (h *lustreHost) wanted(missing []string) []string {
	out := slices.Clone(missing)
	for i, n := range out {
		if n == h.d.Packages.LustreE2fsprogs {
			out[i] += " with Lustre's patches"
		}
	}
	return out
}

func (h *lustreHost) named(name string) string {
	return strings.ReplaceAll(name, distro.KernelRelease, h.kernel)
}

// lustrePatches tells whether this version of e2fsprogs has Lustre's patches. Without them mkfs.lustre
// cannot make an MDT, and e2fsck takes features of targets for damage.
//
// Source: lustre-release, lustre/ChangeLog (2026): e2fsprogs 1.47.3-wc3; releases for Lustre have wc in their version
func lustrePatches(version string) bool { return strings.Contains(version, "wc") }

// install are the actions that bring the missing packages.
func (h *lustreHost) install(sys Look, missing []string) []Action {
	var as []Action
	from := missing // arguments of the package manager
	switch {
	case len(h.Files) > 0:
		files, err := h.files(missing)
		sys.Check(err)
		from = nil
		for _, f := range files {
			at := path.Join("/var/cache/mortar/lustre", f.SHA256, path.Base(f.Path))
			from = append(from, at)
			// It is written whole or not at all, and the digest is part of its name.
			if !sys.Exists(at) {
				as = append(as, Action{Title: "copy " + path.Base(f.Path), File: &File{Path: at, From: f.Path, SHA256: f.SHA256, Mode: 0o644}})
			}
		}
	case h.Repository != "":
		for _, f := range h.source() {
			as = append(as, sys.Want(&f)...)
		}
	default:
		sys.Check(Refuse("lustre-not-installed", With{"kernel": h.kernel, "packages": h.wanted(missing), "fit": h.others()}))
	}
	all := install(sys, h.d.Manager, from)
	all[len(all)-1].Title = "install " + strings.Join(missing, " ")
	return append(as, quietly(sys, h.d.Manager, all)...)
}

// files are those of the missing packages, or of those that do as well.
func (h *lustreHost) files(missing []string) ([]PackageFile, error) {
	pick := func(names []string) (files []PackageFile, absent []string) {
		for _, n := range names {
			i := slices.IndexFunc(h.Files, func(f PackageFile) bool { return f.Name == h.named(n) })
			if i < 0 {
				absent = append(absent, h.named(n))
				continue
			}
			files = append(files, h.Files[i])
		}
		return files, absent
	}
	files, absent := pick(missing)
	if len(absent) > 0 && len(h.Instead) > 0 {
		if other, none := pick(h.Instead); len(none) == 0 {
			files, absent = other, nil
		}
	}
	if len(absent) > 0 {
		code, fit := "lustre-other-kernel", KernelsOf(h.Files)
		if len(fit) == 0 {
			code = "lustre-no-modules"
		}
		return nil, Refuse(code, With{"kernel": h.kernel, "directory": h.Directory, "packages": absent, "fit": fit})
	}
	return files, nil
}

// others are the kernels that the host has Lustre's modules for.
func (h *lustreHost) others() []string {
	var files []PackageFile
	for n := range h.versions {
		if h.have[n] {
			files = append(files, PackageFile{Name: n})
		}
	}
	return KernelsOf(files)
}

// KernelsOf lists the releases of kernels that packages have Lustre's modules for.
func KernelsOf(files []PackageFile) []string {
	var out []string
	for _, f := range files {
		for _, prefix := range []string{"lustre-server-modules-", "lustre-client-modules-"} {
			if k, ok := strings.CutPrefix(f.Name, prefix); ok && k != "dkms" && !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	slices.Sort(out)
	return out
}

// source is the package manager's configuration of the repository.
//
// Source: sources.list(5), deb822 style
func (h *lustreHost) source() []TextFile {
	const key = "/etc/apt/keyrings/mortar-lustre.asc"
	words := strings.Fields(h.Repository)
	text := Header + "Types: deb\nURIs: " + words[0] + "\nSuites: " + words[1] + "\n"
	if len(words) > 2 {
		text += "Components: " + strings.Join(words[2:], " ") + "\n"
	}
	return []TextFile{
		{Path: key, Content: h.Key},
		{Path: "/etc/apt/sources.list.d/mortar-lustre.sources", Content: []byte(text + "Signed-By: " + key + "\n")},
	}
}

// hold keeps the packages of Lustre and of the kernel at their versions. Of the kernel these are the running one,
// and those that bring the next one.
func (h *lustreHost) hold(sys Look) []Action {
	m := h.d.Manager
	out, found := sys.Command(m.Held...)
	if !found {
		return nil
	}
	sys.Succeeded(out, m.Held...)
	held := strings.Fields(out.Stdout)
	var free []string
	for n := range h.versions {
		if h.have[n] && !slices.Contains(held, n) && !h.d.Packages.OtherKernel(n, h.kernel) {
			free = append(free, n)
		}
	}
	if len(free) == 0 {
		return nil
	}
	slices.Sort(free)
	return []Action{{
		Title: "hold " + strings.Join(free, " "), Why: "an upgrade of the kernel would leave this host without Lustre",
		Cmd: slices.Concat(m.Hold, free),
	}}
}

// versions of the installed packages that match a pattern.
func versions(sys Look, m distro.Manager, patterns []string) map[string]string {
	// Its exit code says that a pattern matches nothing.
	out, _ := sys.Command(slices.Concat(m.Versions, patterns)...)
	all := map[string]string{}
	for line := range strings.Lines(out.Stdout) {
		if name, v, _ := strings.Cut(strings.TrimSpace(line), " "); v != "" {
			all[name] = v
		}
	}
	return all
}
