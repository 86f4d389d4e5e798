package plan

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/distro"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Offline is the plan as it would be if every host were blank: a fresh system
// with the hardware of the spec and nothing else on it. No host is reached
// and no secret is read, so that it can be made for a brick that is not
// bought yet, and for flavours that cannot be built yet.
func Offline(ctx context.Context, d *design.Design) (*Plan, error) {
	d = named(d)
	lustre, err := LustreSourceOf(d.Spec)
	if err != nil {
		return nil, err
	}
	steps, err := Desired(d, Facts{Lustre: lustre}, offlineSecrets)
	if err != nil {
		return nil, err
	}
	if lustre == nil { // its packages are on the hosts already
		steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Kind() == "lustre-packages" })
	}
	p := &Plan{Steps: make([]Planned, len(steps))}
	hosts := map[string]resource.Sys{}
	for i, s := range steps {
		h := hosts[s.Host]
		if h == nil {
			paper := blankHost(s.Host, d)
			paper.Files["/proc/sys/kernel/osrelease"] = cmp.Or(lustre.newestKernel(), distro.KernelRelease) + "\n"
			h = &resource.Once{Sys: paper}
			hosts[s.Host] = h
		}
		actions, err := resource.Diff(ctx, h, s.Resource)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.Host, s.Title, err)
		}
		if s.Kind() == "cib" {
			// An offline plan has no real secret, and readers want to see the CIB.
			for k := range actions {
				actions[k].Secret = false
			}
		}
		p.Steps[i] = Planned{Step: s, Actions: actions}
	}
	return p, nil
}

// offlineSecrets stands for the secrets, which an offline plan does not read.
func offlineSecrets(file string) ([]byte, error) {
	return []byte("(content of " + path.Base(file) + ")"), nil
}

// named is the design with something in the place of WWNs that are not known
// before an array has made its LUNs.
func named(d *design.Design) *design.Design {
	out := *d
	out.Arrays = slices.Clone(d.Arrays)
	for i := range out.Arrays {
		luns := slices.Clone(out.Arrays[i].LUNs)
		for j := range luns {
			luns[j].WWN = cmp.Or(luns[j].WWN, "<wwn-of-"+luns[j].Name+">")
		}
		out.Arrays[i].LUNs = luns
	}
	return &out
}

// blankHost is a host of that name with the default distribution, the spec's disks, and nothing
// on them. An RDMA device is there, for a brick that needs one.
func blankHost(name string, d *design.Design) *resource.Paper {
	h := &resource.Paper{Answer: answerIdle, Files: map[string]string{
		"/etc/os-release":               "ID=" + distro.Default().ID + "\nVERSION_ID=" + distro.Default().Version + "\n",
		"/proc/sys/kernel/hostname":     name + "\n",
		"/proc/self/status":             "Uid:\t0\t0\t0\t0\n",
		"/proc/self/mounts":             "/dev/root / ext4 rw 0 0\n",
		"/proc/mounts":                  "/dev/root / ext4 rw 0 0\n",
		distro.Default().Manager.Status: "",
		"/etc/fstab":                    "",
		"/etc/hosts":                    "127.0.0.1 localhost\n",
		"/proc/modules":                 "",
		"/sys/class/infiniband/x":       "",
	}}
	server := slices.ContainsFunc(d.Spec.Servers, func(s spec.Server) bool { return s.Name == name })
	if !server {
		return h
	}
	for _, a := range d.Arrays {
		for _, l := range a.LUNs {
			if slices.Contains(a.Servers, name) {
				h.Drives = append(h.Drives, resource.DiskFact{WWN: l.WWN, Size: int64(l.Size), Device: l.Device, Paths: []string{"/dev/sd-" + l.Name}})
			}
		}
	}
	disks := slices.DeleteFunc(slices.Clone(d.Disks), func(k design.Disk) bool { return k.Array != "" })
	if s := d.Cached(); s != nil {
		disks = append(disks, s.Storage.Cache.SSDs...)
	}
	h.Drives = slices.Grow(h.Drives, len(disks))
	for i, k := range disks {
		f := resource.DiskFact{Serial: k.Serial, WWN: k.WWN, Size: int64(k.Size)}
		if k.Type == "nvme" {
			f.Device = "/dev/disk/by-id/nvme-" + k.Serial
			f.Paths = []string{"/dev/nvme" + strconv.Itoa(i) + "n1"}
		} else {
			// Without a WWN in the spec the map's name is not known yet: the
			// serial stands for it.
			if f.WWN == "" {
				f.WWN = "<wwn-of-" + k.Serial + ">"
			}
			f.Device = "/dev/disk/by-id/wwn-0x" + f.WWN
			f.Paths = []string{"/dev/sd-" + k.Serial}
		}
		h.Drives = append(h.Drives, f)
	}
	return h
}

// answerIdle answers for systemd, where every unit is there and at rest, and for
// signatures, of which there are none. Other programs are not installed.
func answerIdle(argv []string) (resource.Output, error) {
	switch argv[0] {
	case "systemctl":
		var units []string
		for _, a := range argv[1:] {
			if strings.Contains(a, ".") && !strings.HasPrefix(a, "-") {
				units = append(units, "Id="+a+"\nNames="+a+"\nLoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\nJob=\n")
			}
		}
		return resource.Output{Stdout: strings.Join(units, "\n")}, nil
	case "wipefs":
		return resource.Output{Stdout: `{"signatures":[]}`}, nil
	}
	return resource.Output{}, fmt.Errorf("%s: %w", argv[0], exec.ErrNotFound)
}
