package resource

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/distro"
)

// The packages are those of Lustre 2.17.57 as they were built for the virtual rack.
const lustreKernel = "6.12.107+deb13-cloud-amd64"

func lustreFiles(names ...string) []PackageFile {
	var out []PackageFile
	for _, n := range names {
		out = append(out, PackageFile{Name: n, Version: "2.17.57-62-gc881f8e-1", Path: "/admin/" + n + "_1_amd64.deb", SHA256: "5ea1"})
	}
	return out
}

// lustreNode is a Debian host with packages as dpkg has them.
func lustreNode(kernel, status, versions, held string) *Paper {
	return &Paper{
		Files: map[string]string{
			"/etc/os-release": "ID=debian\nVERSION_ID=13\n", "/proc/sys/kernel/osrelease": kernel + "\n", "/var/lib/dpkg/status": status,
		},
		Outputs: map[string]Output{"dpkg-query -W": {Stdout: versions, Code: 1}, "apt-mark showhold": {Stdout: held}},
	}
}

const lustreStatus = `Package: lustre-server-modules-6.12.107+deb13-cloud-amd64
Status: install ok installed
Provides: lustre-server-modules, lustre-client-modules

Package: lustre-server-utils
Status: install ok installed
Provides: lustre-client-utils

Package: e2fsprogs
Status: hold ok installed

Package: linux-image-cloud-amd64
Status: install ok installed

Package: linux-image-6.12.107+deb13-cloud-amd64
Status: install ok installed

Package: linux-image-6.12.95+deb13-cloud-amd64
Status: install ok installed

Package: linux-image-amd64
Status: deinstall ok config-files
`

const lustreVersions = `e2fsprogs 1.47.99+lustre1.45.6.wc2-1
linux-image-6.12.107+deb13-cloud-amd64 6.12.107-1
linux-image-6.12.95+deb13-cloud-amd64 6.12.95-1
linux-image-amd64 6.12.95-1
linux-image-cloud-amd64 6.12.107-1
lustre-client-modules
lustre-server-modules-6.12.107+deb13-cloud-amd64 2.17.57-62-gc881f8e-1
lustre-server-utils 2.17.57-62-gc881f8e-1
`

func TestLustrePackages(t *testing.T) {
	p := distro.Default().Packages
	server := &LustrePackages{Names: p.LustreServer}
	client := &LustrePackages{Names: p.LustreClient, Instead: p.LustreServer}
	wantHold := "apt-mark hold linux-image-6.12.107+deb13-cloud-amd64 linux-image-cloud-amd64 lustre-server-modules-6.12.107+deb13-cloud-amd64 lustre-server-utils"
	for _, r := range []*LustrePackages{server, client} {
		as, err := Diff(t.Context(), lustreNode(lustreKernel, lustreStatus, lustreVersions, "e2fsprogs\n"), r)
		if err != nil {
			t.Fatal(err)
		}
		wantShow(t, as, wantHold)
		all := strings.Join(strings.Fields(wantHold)[2:], "\n") + "\ne2fsprogs\n"
		if as, err := Diff(t.Context(), lustreNode(lustreKernel, lustreStatus, lustreVersions, all), r); err != nil || len(as) > 0 {
			t.Errorf("all is held: %v %v", as, err)
		}
	}
}

func TestLustrePackagesInstalled(t *testing.T) {
	p := distro.Default().Packages
	const at = "/var/cache/mortar/lustre/5ea1/"
	const install = "apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold install "
	dir := &LustrePackages{Names: p.LustreServer, Directory: "lp", Files: lustreFiles("lustre-server-modules-"+lustreKernel, "lustre-server-utils", "e2fsprogs")}
	blank := lustreNode(lustreKernel, "Package: e2fsprogs\nStatus: install ok installed\n", "e2fsprogs 1.47.2-3\n", "")
	cmds := func(as []Action, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, a := range as {
			switch {
			case a.Cmd != nil:
				out = append(out, strings.Join(a.Cmd, " "))
			case a.File.Remove:
				out = append(out, "rm "+a.File.Path)
			default:
				out = append(out, "write "+a.File.Path+" "+a.File.From)
			}
		}
		return strings.Join(out, "\n")
	}
	file := func(n string) string { return at + n + "_1_amd64.deb" }
	modules := "lustre-server-modules-" + lustreKernel
	want := "write " + file(modules) + " /admin/" + modules + "_1_amd64.deb\nwrite " + file("lustre-server-utils") + " /admin/lustre-server-utils_1_amd64.deb\n" +
		"write " + file("e2fsprogs") + " /admin/e2fsprogs_1_amd64.deb\n" +
		"write /usr/sbin/policy-rc.d \napt-get -q update\n" + install + file(modules) + " " + file("lustre-server-utils") + " " + file("e2fsprogs") + "\nrm /usr/sbin/policy-rc.d"
	if got := cmds(Diff(t.Context(), blank, dir)); got != want {
		t.Errorf("from a directory:\n%s\nwant:\n%s", got, want)
	}
	// An apply that was killed has copied some.
	blank.Files[file(modules)] = "x"
	if got := cmds(Diff(t.Context(), blank, dir)); strings.Contains(got, "write "+file(modules)) || !strings.Contains(got, install+file(modules)) {
		t.Errorf("copied already:\n%s", got)
	}
	// One build is of server and client: a client takes the server's.
	client := &LustrePackages{Names: p.LustreClient, Instead: p.LustreServer, Directory: "lp", Files: dir.Files}
	if got := cmds(Diff(t.Context(), blank, client)); !strings.Contains(got, install+file(modules)) {
		t.Errorf("client:\n%s", got)
	}
	repo := &LustrePackages{Names: p.LustreServer, Repository: "https://lustre.example.org/debian trixie main", Key: []byte("key")}
	want = "write /etc/apt/keyrings/mortar-lustre.asc \nwrite /etc/apt/sources.list.d/mortar-lustre.sources \nwrite /usr/sbin/policy-rc.d \napt-get -q update\n" +
		install + modules + " lustre-server-utils e2fsprogs\nrm /usr/sbin/policy-rc.d"
	as, err := Diff(t.Context(), blank, repo)
	if got := cmds(as, err); got != want {
		t.Errorf("from a repository:\n%s\nwant:\n%s", got, want)
	}
	if text := string(as[1].File.Content); !strings.HasSuffix(text, "Types: deb\nURIs: https://lustre.example.org/debian\nSuites: trixie\nComponents: main\nSigned-By: /etc/apt/keyrings/mortar-lustre.asc\n") {
		t.Error(text)
	}
}

func TestLustrePackagesRefused(t *testing.T) {
	p := distro.Default().Packages
	dir := &LustrePackages{Names: p.LustreServer, Directory: "lp", Files: lustreFiles("lustre-server-modules-"+lustreKernel, "lustre-server-utils", "e2fsprogs")}
	none := &LustrePackages{Names: p.LustreServer}
	for _, c := range []struct {
		r    *LustrePackages
		sys  *Paper
		code string
		args []string
	}{
		{dir, lustreNode("6.12.108+deb13-amd64", "", "", ""),
			"lustre-other-kernel", []string{"kernel", "6.12.108+deb13-amd64", "directory", "lp", "packages", "lustre-server-modules-6.12.108+deb13-amd64", "fit", lustreKernel}},
		{none, lustreNode("6.12.108+deb13-amd64", lustreStatus, lustreVersions, ""),
			"lustre-not-installed", []string{"kernel", "6.12.108+deb13-amd64", "packages", "lustre-server-modules-6.12.108+deb13-amd64", "fit", lustreKernel}},
		{none, lustreNode(lustreKernel, lustreStatus, strings.Replace(lustreVersions, "1.47.99+lustre1.45.6.wc2-1", "1.47.2-3", 1), ""),
			"lustre-not-installed", []string{"kernel", lustreKernel, "packages", "e2fsprogs with Lustre's patches"}},
	} {
		refused(t, c.r, c.sys, c.code, c.args...)
	}
}
