package resource

import "testing"

// A host gets a file of what it lacks. Swap of the site's own counts and stays.
func TestSwap(t *testing.T) {
	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	const unit = "/etc/systemd/system/var-lib-mortar-swap.swap"
	h := &Paper{
		Files:   map[string]string{"/proc/swaps": heading + "/dev/sda3                               partition\t1048572\t\t0\t\t-2\n", "/proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\n"},
		Outputs: map[string]Output{"df": {Stdout: "     Avail\n5368709120\n"}, "systemctl": {Stdout: "Id=var-lib-mortar-swap.swap\nNames=var-lib-mortar-swap.swap\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"}},
	}
	s := &Swap{Bytes: 1 << 30}
	if as := diff(t, s, h); len(as) != 0 {
		t.Errorf("the site has enough: %s", show(as))
	}
	s.Bytes = 3 << 30
	as := diff(t, s, h)
	wantShow(t, as, `mkdir /var/lib/mortar 0755
fallocate --length 2147487744 /var/lib/mortar/swap
chmod 0600 /var/lib/mortar/swap
mkswap /var/lib/mortar/swap
swapon /var/lib/mortar/swap
write `+unit+` 0644
systemctl daemon-reload
`)
	for _, a := range as {
		if a.File != nil && !a.File.Mkdir {
			h.Files[a.File.Path] = string(a.File.Content)
		}
	}
	h.Files["/proc/swaps"] += "/var/lib/mortar/swap                    file\t\t2097148\t\t0\t\t-3\n"
	if as := diff(t, s, h); len(as) != 0 {
		t.Errorf("made: %s", show(as))
	}
	s.Bytes = 4 << 30
	if as := diff(t, s, h); len(as) == 0 || as[0].Cmd[0] != "swapoff" {
		t.Errorf("it grows: %s", show(as))
	}
	s.Bytes = 64 << 30
	refused(t, s, h, "swap-no-room", "free", "5.0 GiB", "left", "1.0 GiB")
	h.Files["/proc/self/mounts"] = "overlay / overlay rw 0 0\n"
	refused(t, s, h, "swap-file-system", "type", "overlay")
}
