package kind

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Both kinds pass the same cases: a mount has a name, and a second mount of the
// same files has a cache of its own.
func TestKinds(t *testing.T) {
	for example, want := range map[string]struct{ label, name, readBack, fstype, loadDir, foreign, lnet string }{
		"nfs-ha": {"v4.1", "NFSv4.1", "mount -t nfs -o vers=4.1,proto=tcp,hard,timeo=150,retrans=2,rsize=1048576,wsize=1048576,nosharecache 10.77.1.100:/srv/home/data /run/x",
			"nfs4", "server: install -d -o 65534 -g 65534 -m 0755 /srv/home/data/.mortar", "lustre", ""},
		"lustre-small": {"lustre", "Lustre", "mount -t lustre -o flock,noatime 10.20.0.11@tcp:10.20.0.12@tcp:/small /run/x",
			"lustre", "client: install -d -m 0755 /small/.mortar; lfs setstripe --stripe-count -1 /small/.mortar", "nfs4", "tcp"},
	} {
		s, err := spec.Load("../../../examples/" + example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		d, err := design.Derive(s)
		if err != nil {
			t.Fatal(err)
		}
		k, m := Of(d), d.Mounts[0]
		if k != For(m) {
			t.Errorf("%s: the mount is of another kind than the services", example)
		}
		m.Options = append(m.Options, "_netdev", "x-systemd.automount")
		if got := k.Label(m); got != want.label {
			t.Errorf("%s: %s", example, got)
		}
		if got := k.LNet(d); got != want.lnet || k.Is().Evicts != (want.lnet != "") {
			t.Errorf("%s: network %q of LNet", example, got)
		}
		if got := k.Name(m); got != want.name {
			t.Errorf("%s: %s", example, got)
		}
		if !strings.HasPrefix(want.fstype, k.Is().FSType) || strings.HasPrefix(want.foreign, k.Is().FSType) {
			t.Errorf("%s: mounts of another type, or not its own", example)
		}
		for _, s := range d.Services() {
			if !k.Uses(m, s.Name) {
				t.Errorf("%s: a mount does not need %s", example, s.Name)
			}
		}
		if got := k.Volumes(d); len(got) != 1 || got[0] != m.Service {
			t.Errorf("%s: volumes %v, want %s", example, got, m.Service)
		}
		onServer, dir, create := k.LoadDir(m, ".mortar")
		got := "client: "
		if onServer {
			got = "server: "
		}
		for i, a := range append([]resource.Action{create}, k.Spread(dir)...) {
			if i > 0 {
				got += "; "
			}
			got += strings.Join(a.Cmd, " ")
		}
		if got != want.loadDir || !strings.HasSuffix(dir, "/.mortar") {
			t.Errorf("%s: %s (%s)", example, got, dir)
		}
		if got := strings.Join(k.ReadBack(m, "/run/x"), " "); got != want.readBack {
			t.Errorf("%s: %s", example, got)
		}
		for _, s := range d.Services() {
			if len(s.MountPoints()) == 0 {
				t.Errorf("%s: service %s is mounted nowhere", example, s.Name)
			}
		}
	}
}

func TestReadBackOfNFS(t *testing.T) {
	for in, want := range map[string]string{
		"hard,vers=4.1,_netdev,x-systemd.automount,timeo=600": "hard,vers=4.1,timeo=600,nosharecache",
		"hard,sharecache": "hard,vers=3,nosharecache",
	} {
		if got := (nfs{}).ReadBack(design.ClientMount{Version: "3", Options: strings.Split(in, ",")}, "/x")[4]; got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestLocksOfNFS(t *testing.T) {
	for version, want := range map[string]bool{"3": true, "4.1": false, "4.2": false} {
		if got := (nfs{}).AsksForLocks(design.ClientMount{Version: version}); got != want {
			t.Errorf("NFSv%s: %v", version, got)
		}
	}
}

// A restart ends with the server running: every start is in again, which a
// failure does not interrupt.
func TestRestart(t *testing.T) {
	stop, again := nfs{}.Restart([]*design.Service{{NFS: &design.NFS{MountPoint: "/srv/home"}}})
	var text []string
	for _, a := range append(stop, again...) {
		text = append(text, strings.Join(a.Cmd, " "))
	}
	if got, want := strings.Join(text, "; "), "systemctl stop nfs-server.service; umount /srv/home; mount /srv/home; systemctl start nfs-server.service"; got != want || len(again) != 1 {
		t.Errorf("%s", got)
	}
}

// A server of NFSv3 hears of the death of a client when the client boots.
func TestFreesLocks(t *testing.T) {
	for version, want := range map[string]bool{"3": false, "4.1": true, "4.2": true, "lustre": true} {
		m := design.ClientMount{Version: version}
		if got := For(m).FreesLocks(m); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}
