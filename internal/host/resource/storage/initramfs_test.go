package storage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// osRelease has a fake host be Debian 13.
const osRelease = "ID=debian\nVERSION_ID=\"13\"\n"

var (
	debian13     = distro.Default()
	mdadmConf    = debian13.MDConf.Main
	mdadmConfDir = debian13.MDConf.Dir
)

const (
	arrayA = "5d1c0aaa:01234567:89abcdef:00000001"
	arrayB = "5d1c0aaa:01234567:89abcdef:00000002"
)

func TestInitramfs(t *testing.T) {
	const rules = "/etc/udev/rules.d/69-bcache.rules"
	i := &Initramfs{Arrays: []string{arrayA, arrayB}, Files: []string{rules}}
	sys := &resource.Paper{Files: map[string]string{"/etc/os-release": osRelease, debian13.Initrd.Tool: "", rules: "# none\n"}, Info: map[string]resource.FileInfo{}}
	hook := "write " + debian13.Initrd.Hook + " 0755\n"
	wantShow(t, diff(t, i, sys), hook) // boots without an image
	sys.Files[debian13.Initrd.Hook], sys.Info[debian13.Initrd.Hook] = i.hook(debian13), resource.FileInfo{Mode: 0o755}
	wantShow(t, diff(t, i, sys), "")

	sys.Files["/boot/initrd.img-6.12"], sys.Files["/lib/modules/6.12/modules.dep"] = "cpio", ""
	sys.Files["/boot/initrd.img-6.1"], sys.Files["/lib/modules/6.1/modules.dep"] = "cpio", ""
	sys.Files["/boot/initrd.img-6.1.bak"] = "cpio"
	both := "update-initramfs -u -k 6.1\nupdate-initramfs -u -k 6.12\n"
	wantShow(t, diff(t, i, sys), both)
	conf := "ARRAY <ignore> UUID=" + arrayA + "\nARRAY <ignore> UUID=" + arrayB + "\n"
	in := func(kernel, name, text string) { sys.Files["/boot/initrd.img-"+kernel+":"+name] = text }
	in("6.1", mdadmConf, conf)
	in("6.1", rules, "# none\n")
	in("6.12", rules, "# none\n")
	for _, tc := range []struct{ name, text, why string }{
		{mdadmConf, "ARRAY <ignore> UUID=" + arrayA + "\n", "does not say that array " + arrayB},
		{mdadmConfDir + "mortar.conf", conf, "does not say that array " + arrayB}, // of the case before
		{mdadmConf, conf + "array /dev/md/home metadata=1.2 uuid=5D1C0AAA-01234567-89abcdef-00000002 name=any:home\n", "has /dev/md/home assembled"},
		{debian13.MDConf.Alt, "ARRAY /dev/md9 UUID=" + arrayA, "assembled"},
		{rules, "RUN+=\"bcache-register\"\n", rules + " is not that of the host"},
		{"", "damaged", "cannot be read: the archive is cut short"},
	} {
		if tc.name == "" {
			sys.Files["/boot/initrd.img-6.12"] = tc.text
		} else {
			in("6.12", tc.name, tc.text)
		}
		as := diff(t, i, sys)
		wantShow(t, as, "update-initramfs -u -k 6.12\n")
		if len(as) == 1 && !strings.Contains(as[0].Title, tc.why) {
			t.Errorf("%q does not say %q", as[0].Title, tc.why)
		}
		in("6.12", mdadmConf, conf)
		in("6.12", rules, "# none\n")
		if tc.name != mdadmConf && tc.name != rules {
			delete(sys.Files, "/boot/initrd.img-6.12:"+tc.name)
		}
		if tc.name == mdadmConf && tc.why[:4] == "does" {
			in("6.12", mdadmConf, "ARRAY <ignore> UUID="+arrayA+"\n")
		}
	}
	sys.Files["/boot/initrd.img-6.12"] = "cpio"
	wantShow(t, diff(t, i, sys), "")
	in("6.12", mdadmConf, "ARRAY /dev/md/system UUID=1:2:3:4\n"+conf)
	wantShow(t, diff(t, i, sys), "") // the array of the root is left as it is
	in("6.12", mdadmConf, "")
	delete(sys.Files, debian13.Initrd.Tool)
	refused(t, i, sys, "initramfs-no-tool", "image", "/boot/initrd.img-6.12", "package", "initramfs-tools")
}

// The hook does its work on what Debian's hook of mdadm left behind.
func TestInitramfsHook(t *testing.T) {
	dest := t.TempDir()
	rules := filepath.Join(t.TempDir(), "69-bcache.rules")
	if err := os.WriteFile(rules, []byte("# none\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	i := &Initramfs{Arrays: []string{arrayA, arrayB}, Files: []string{rules}}
	hook := filepath.Join(t.TempDir(), "mortar")
	if err := os.WriteFile(hook, []byte(i.hook(debian13)), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(hook, args...)
		cmd.Env = append(os.Environ(), "DESTDIR="+dest)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run("prereqs"); out != "" {
		t.Errorf("prereqs: %q", out)
	}
	ignore := "ARRAY <ignore> UUID=" + arrayA + "\nARRAY <ignore> UUID=" + arrayB + "\n"
	conf := filepath.Join(dest, mdadmConf)
	read := func() string {
		t.Helper()
		b, err := os.ReadFile(conf)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run() // mdadm is not in the image
	if d := cmp.Diff(ignore, read()); d != "" {
		t.Error(d)
	}
	for name, tc := range map[string]struct{ have, want string }{
		"mkconf": {"HOMEHOST <system>\n\n# definitions of existing MD arrays\n" +
			"ARRAY /dev/md/system  metadata=1.2 UUID=aaaa0000:01234567:89abcdef:00000001 name=any:system\n   spares=1\n" +
			"ARRAY /dev/md/home  metadata=1.2 UUID=" + arrayA + " name=any:home\n   spares=2\n" +
			"ARRAY /dev/md/c metadata=1.2 UUID=" + strings.ToUpper(arrayB) + "\n\n# auto-generated\n",
			"HOMEHOST <system>\n\n# definitions of existing MD arrays\n" +
				"ARRAY /dev/md/system  metadata=1.2 UUID=aaaa0000:01234567:89abcdef:00000001 name=any:system\n   spares=1\n"},
		"by hand": {"arr /dev/md0\n\tuuid='5d1c0aaa-01234567-89abcdef-00000001'\nPROGRAM x\nARRAY /dev/md1 name=root\n",
			"PROGRAM x\nARRAY /dev/md1 name=root\n"},
		"twice": {ignore, ""},
	} {
		if err := os.WriteFile(conf, []byte(tc.have), 0o640); err != nil {
			t.Fatal(err)
		}
		run()
		if d := cmp.Diff(tc.want+ignore, read()); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dest, rules)); err != nil || string(b) != "# none\n" {
		t.Errorf("the rules: %q %v", b, err)
	}
	// What the hook writes is what the check looks for.
	sys := &resource.Paper{Files: map[string]string{"/boot/initrd.img-6": "", "/etc/os-release": osRelease, "/lib/modules/6/modules.dep": "", debian13.Initrd.Tool: "", rules: "# none\n",
		debian13.Initrd.Hook: i.hook(debian13), "/boot/initrd.img-6:" + mdadmConf: read(), "/boot/initrd.img-6:" + rules: "# none\n"},
		Info: map[string]resource.FileInfo{debian13.Initrd.Hook: {Mode: 0o755}}}
	wantShow(t, diff(t, i, sys), "")
	// A hook that fails ends the build.
	if err := os.Remove(rules); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(hook)
	cmd.Env = append(os.Environ(), "DESTDIR="+dest)
	if err := cmd.Run(); err == nil {
		t.Error("the hook does not say that a file is missing")
	}
}

func TestMDConf(t *testing.T) {
	c := &MDConf{Path: mdadmConfDir + "mortar.conf", Content: []byte("ARRAY <ignore> UUID=" + arrayA + "\n"), Arrays: []string{arrayA}}
	sys := &resource.Paper{Files: map[string]string{
		"/etc/os-release": osRelease, mdadmConf: "MAILADDR root\nARRAY /dev/md/home metadata=1.2 UUID=" + arrayA + "\n   spares=1\nARRAY /dev/md/root UUID=" + arrayB + "\n",
	}}
	as := diff(t, c, sys)
	wantShow(t, as, "write "+c.Path+" 0644\nwrite "+mdadmConf+" 0644\n")
	want := "MAILADDR root\n# now in " + c.Path + ": ARRAY /dev/md/home metadata=1.2 UUID=" + arrayA + "\n# now in " + c.Path + ":    spares=1\nARRAY /dev/md/root UUID=" + arrayB + "\n"
	if d := cmp.Diff(want, string(as[1].File.Content)); d != "" {
		t.Error(d)
	}
	for _, a := range as {
		sys.Files[a.File.Path] = string(a.File.Content)
	}
	wantShow(t, diff(t, c, sys), "")
	sys.Files[mdadmConfDir+"site.conf"] = "ARRAY /dev/md1 UUID=" + arrayA
	wantShow(t, diff(t, c, sys), "write "+mdadmConfDir+"site.conf 0644\n")
}
