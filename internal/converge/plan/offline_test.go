package plan

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
)

// offline plans an example, edited by replacing old by new.
func offline(t *testing.T, name string, oldNew ...string) (*design.Design, *Plan, string) {
	t.Helper()
	src, err := fs.ReadFile(examples.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(name, []byte(strings.NewReplacer(oldNew...).Replace(string(src))))
	if err != nil {
		t.Fatal(err)
	}
	d, err := design.Derive(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Offline(t.Context(), d)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var b bytes.Buffer
	if err := p.Show(&b, nil); err != nil {
		t.Fatal(err)
	}
	return d, p, b.String()
}

// Every example has a plan for blank hosts, on every host, and no secret in it.
func TestOfflineExamples(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		d, p, text := offline(t, f)
		hosts := map[string]bool{}
		for _, s := range p.Pending() {
			hosts[s.Host] = true
		}
		for _, v := range d.Spec.Servers {
			if !hosts[v.Name] {
				t.Errorf("%s: nothing to do on %s", f, v.Name)
			}
		}
		for _, v := range d.Spec.Clients {
			if !hosts[v.Name] {
				t.Errorf("%s: nothing to do on %s", f, v.Name)
			}
		}
		// What stands for a secret is seen in the CIB only, which is hidden in a
		// real plan.
		for line := range strings.Lines(text) {
			if strings.Contains(line, "(content of ") && !strings.Contains(line, `name="community"`) {
				t.Errorf("%s: a secret is shown: %s", f, line)
			}
		}
	}
}

// inOrder says that text has the parts, in this order.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		i := strings.Index(text, p)
		if i < 0 {
			t.Fatalf("not there, or not in order: %s", p)
		}
		text = text[i+len(p):]
	}
}

// A brick on arrays: LUNs by their own names, no md, everything above as on
// JBODs.
func TestOfflineArray(t *testing.T) {
	_, _, text := offline(t, "nss4-ha-144.yaml")
	inOrder(t, text, "nss1\n", "install lvm2 multipath-tools xfsprogs", "overrides {", "no_path_retry 30", "prio rdac", "alias nss4-lun0", `ENV{DM_UUID}=="mpath-3<wwn-of-nss4-lun0>`,
		"vgcreate --yes --dataalignment 5120k", "--systemid mortar-nss4-building", "/dev/mapper/nss4-lun0 /dev/mapper/nss4-lun1 /dev/mapper/nss4-lun2 /dev/mapper/nss4-lun3",
		"lvcreate", "--stripes 4 --stripesize 512k", "su=512k,sw=40", `"luns": [`, `"name": "nss4-lun0"`, "fence_ipmilan", "\nnss2\n")
	for _, no := range []string{"mdadm.conf", "mdcheck", "raid456"} {
		if strings.Contains(text, no) {
			t.Errorf("%s in a plan without md", no)
		}
	}
}

func TestOfflineCache(t *testing.T) {
	_, _, text := offline(t, "nfs-dfc.yaml")
	inOrder(t, text, "bcache-tools", "69-bcache.rules", "lvcreate", "--name cacheheader", "host-cache apply /etc/mortar/cache-scratch.json", "mkfs.xfs", "/dev/mapper/nfsdfc_scratch.cached")
	if strings.Contains(text, "multipath-tools") || strings.Contains(text, "multipath.conf") {
		t.Error("multipath for a controller in the server")
	}
}

// The Lustre brick: modules, targets and order.
func TestOfflineLustre(t *testing.T) {
	_, p, text := offline(t, "lustre-brick.yaml")
	// The MGS lives on the server without the MDT.
	inOrder(t, text, "mds01\n", `options lnet networks="o2ib(ib0)"`,
		"mkfs.lustre --mdt --fsname=testfs --index=0 --mgsnode=10.20.0.12@o2ib --mgsnode=10.20.0.11@o2ib", "stride=16,stripe-width=64", `id="service-mdt0000"`, `id="order-service-mgt-service-mdt0000"`,
		"mds02\n", "mkfs.lustre --mgs --servicenode=10.20.0.12@o2ib --servicenode=10.20.0.11@o2ib '--mkfsoptions=-E mmp_update_interval=2' /dev/lbrick_mgt/mgt",
		"oss01\n", "--index=0", "--index=1", "--index=2", `id="service-ost0005"`, "oss02\n", "--index=5", "node01\n", "flock,noatime,_netdev,x-systemd.wanted-by=remote-fs.target,x-systemd.mount-timeout=infinity,retry=30 0 0", "mount -o retry=0 ")
	// A target registers with the MGS when it starts first: the services of the
	// MDS run before the cluster of any OSS has its configuration.
	var order []string
	for _, s := range p.Steps {
		if k := s.Kind(); k == "cib" || k == "running" && strings.HasPrefix(s.Title, "service ") {
			order = append(order, s.Host+" "+s.Title)
		}
	}
	want := []string{"mds01 cluster configuration", "mds01 service mgt", "mds02 service mdt0000", "oss01 cluster configuration"}
	if len(order) < len(want) || !slices.Equal(order[:len(want)], want) {
		t.Errorf("%q", order)
	}
	_, _, small := offline(t, "lustre-small.yaml")
	inOrder(t, small, "mds01\n", "raid10", "ARRAY <ignore> UUID=", "mdadm --create /dev/md/small-r0", "--level=10", "vgcreate", "mkfs.lustre --mgs", "/dev/small_mdt0000/mgt", "/dev/small_mdt0000/mdt0000",
		`"fsname": "small"`, "oss01\n", "mdadm --create /dev/md/small-r1", "mkfs.lustre --ost", "/dev/small_ost0000/ost0000")
}

func TestOfflineNFSHA(t *testing.T) {
	_, _, text := offline(t, "nfs-ha.yaml")
	inOrder(t, text, "\nnfs1\n"[1:], "mdadm --create /dev/md/brick1-r0", "lvm vgcreate", "lvm lvcreate", "mkfs.xfs -L home", "cibadmin")
}

// NFS over RDMA adds a package, a module, the listener in nfs.conf and in the agent's
// config, and the client's mount options.
func TestOfflineRDMA(t *testing.T) {
	_, _, text := offline(t, "nfs-ha.yaml", "\nnfs:\n", "\nnfs:\n  transport: rdma\n")
	inOrder(t, text, "\nnfs1\n"[1:], "rdma-core", "rpcrdma", "rdma=20049", `"rdma": 20049`, "\nc1\n"[1:], "proto=rdma,port=20049,hard")
	_, _, single := offline(t, "nfs.yaml", "\nnfs:\n", "\nnfs:\n  transport: rdma\n")
	inOrder(t, single, "rdma-core", "rpcrdma", "rdma=20049", "proto=rdma,port=20049,hard")
}

// A Lustre whose MDS has JBODs and whose OSS has an array.
func TestOfflineMixedLustre(t *testing.T) {
	_, _, text := offline(t, "lustre-small.yaml", "raid: {level: 6, data: 2, spares: 2", "kind: array\n        model: ME4084\n        raid: {level: 6, data: 2, spares: 2")
	inOrder(t, text, "mds01\n", "mdadm --create /dev/md/small-r0", "vgcreate", "\noss01\n",
		"alias small-OST0000", "vgcreate", "/dev/mapper/small-OST0000", "mkfs.lustre --ost", "/dev/small_ost0000/ost0000")
	if strings.Contains(text, "/dev/md/small-r1") {
		t.Error("md on the servers of an array")
	}
}

// A file system directly on the one LUN of a controller.
func TestOfflineDevice(t *testing.T) {
	_, _, text := offline(t, "nfs-dfc.yaml", `cache:
  ssds:
    - {serial: SSD01, size: 350GB, type: nvme}
    - {serial: SSD02, size: 350GB, type: nvme}
  mode: write-back
  sequential_bypass: 1MiB
`, "", "storage:\n", "storage:\n  volume: device\n", "controller: 1}", "controller: 1, wwns: ['600508b1001c0001']}")
	inOrder(t, text, "mkfs.xfs", "su=512k,sw=40", "/dev/disk/by-id/wwn-0x600508b1001c0001", "/dev/disk/by-id/wwn-0x600508b1001c0001 /srv/scratch xfs")
	if strings.Contains(text, "vgcreate") {
		t.Error("LVM on a LUN that is to carry the file system itself")
	}
}

// Plans are in testdata as a user sees them, one for each shape of a brick: a
// change of the code that is not meant to change a brick changes none of them.
func TestOfflinePlansStayTheSame(t *testing.T) {
	for _, name := range []string{
		"nfs", "nfs-ha", "nfs-ha-xl", "jbod-ha", "nvme-ha", // JBODs
		"nss5.5", "nss7.4-ha", "nss-ha-xl", "nfs-dfc", // arrays
		"lustre-small",
	} {
		_, _, text := offline(t, name+".yaml")
		golden(t, "plan-"+name+".txt", text)
	}
}
