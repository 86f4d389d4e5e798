package rack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/rack/array"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// ensureSystemDisk makes a node's system disk: a copy of the base with the node's
// identity (names, addresses, keys).
func ensureSystemDisk(ctx context.Context, r *rack, n *hw.Node, base, adminKey string) error {
	img := hw.SystemDisksOf(r.dir, n)[0].Image
	if tool.Exists(img) {
		return nil
	}
	files, err := identity(r, n, adminKey)
	if err != nil {
		return err
	}
	seed, err := os.MkdirTemp(filepath.Dir(img), "seed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(seed)
	commands := "mkdir /root/.ssh\nset_inode_field /root/.ssh mode 040700\n"
	for i, f := range append(files, seedFile{"/etc/network/interfaces", interfacesFile(r.cfg, n), 0o644}) {
		from := filepath.Join(seed, fmt.Sprint(i))
		// Chmod: the mode does not depend on the umask.
		if err := errors.Join(os.WriteFile(from, []byte(f.text), f.mode), os.Chmod(from, f.mode)); err != nil {
			return err
		}
		commands += "write " + from + " " + f.name + "\n"
	}
	script := filepath.Join(seed, "commands")
	if err := os.WriteFile(script, []byte(commands), 0o600); err != nil {
		return err
	}
	part := img + ".part"
	if err := tool.Run(ctx, "cp", "--sparse=always", base, part); err != nil {
		return err
	}
	// debugfs(8) exits with 0 even after errors, so read back what it wrote.
	fs := fmt.Sprintf("%s?offset=%d", part, hw.PartitionStart)
	if err := tool.Run(ctx, "debugfs", "-w", "-f", script, fs); err != nil {
		return err
	}
	if err := tool.Run(ctx, "debugfs", "-R", "dump /root/.ssh/authorized_keys "+script, fs); err != nil {
		return err
	}
	if got, err := os.ReadFile(script); err != nil || string(got) != adminKey+"\n" {
		return fmt.Errorf("%s: debugfs did not write the node's files (%v)", part, err)
	}
	return os.Rename(part, img)
}

// interfacesFile is interfaces(5) of a node. Its first network card is eth0:
// see nodeimage.KernelArgs.
func interfacesFile(c *hw.Config, n *hw.Node) string {
	var b strings.Builder
	b.WriteString("auto lo\niface lo inet loopback\n")
	for i, nic := range n.NICs {
		fmt.Fprintf(&b, "auto %s\niface %[1]s inet static\n    address %s\n    mtu %d\n", hw.NICID(i), nic.Address, c.MTU(nic.Network))
	}
	return b.String()
}

// Inventory is the content of inventory.json: how to reach the nodes.
type Inventory struct {
	// Netns is the network namespace in which the addresses are reachable.
	Netns string          `json:"netns"`
	Hosts []InventoryHost `json:"hosts"`
	// Scale is the factor by which disks are smaller than the spec's: 1000 means
	// 1/1000; 0 and 1 mean the same size.
	Scale int64 `json:"scale,omitempty"`
	// WWNs of each array's LUNs by the array's name in the spec, in order of LUN
	// number.
	WWNs map[string][]string `json:"wwns,omitempty"`
	// Certificates are the fingerprints of the certificates of each array's
	// controllers, by the array's name in the spec.
	Certificates map[string][]string `json:"certificates,omitempty"`
}

// InventoryHost is one node.
type InventoryHost struct {
	Name    string     `json:"name"`
	Role    string     `json:"role"`
	Address netip.Addr `json:"address"`
	Port    int        `json:"port"`
	User    string     `json:"user"`
	// IdentityFile is the path of the administrator's private key.
	IdentityFile string `json:"identity_file"`
	// HostKey is the node's public host key as a line of an
	// authorized_keys file. It never changes and is known before the
	// node's first boot.
	HostKey string `json:"host_key"`
	// Netns is the network namespace to dial from.
	Netns string `json:"netns"`
}

// hostsFile is /etc/hosts of every node: a node's name is its address on the
// management network, and NAME-NETWORK its address on another.
func hostsFile(c *hw.Config) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	admin := c.AdminNetwork().Name
	for _, n := range c.Nodes {
		for _, nic := range n.NICs {
			names := n.Name + "-" + nic.Network
			if nic.Network == admin {
				names = n.Name + " " + names
			}
			fmt.Fprintf(&b, "%s %s\n", nic.Address.Addr(), names)
		}
	}
	return b.String()
}

// addressesFile is the file that the node's first stage reads: MAC, address and MTU.
func addressesFile(c *hw.Config, n *hw.Node) string {
	var b strings.Builder
	for _, nic := range n.NICs {
		fmt.Fprintf(&b, "%s %s %d\n", strings.ToLower(nic.MAC), nic.Address, c.MTU(nic.Network))
	}
	return b.String()
}

// machineID is a node's machine-id(5): the same for the same rack and node.
func machineID(c *hw.Config, n *hw.Node) string {
	sum := sha256.Sum256([]byte("mortar rack\x00" + c.Name + "\x00" + n.Name))
	// A version 4 UUID, as which systemd uses the machine-id.
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return hex.EncodeToString(sum[:16])
}

// ensureSeeds makes the keys, the nodes' own layers and the inventory. base is the base
// of the system disks of nodes that boot the distribution's way.
func ensureSeeds(ctx context.Context, r *rack, base string) error {
	adminKey, err := tool.EnsureKey(identityFile(r.dir), "mortar rack "+r.cfg.Name)
	if err != nil {
		return err
	}
	inv := Inventory{Netns: r.cfg.Netns(), Scale: r.cfg.Scale, WWNs: r.cfg.WWNs}
	var known strings.Builder
	for i := range r.cfg.Nodes {
		n := &r.cfg.Nodes[i]
		hostKey, err := tool.EnsureKey(hostKeyFile(r.dir, n.Name), "root@"+n.Name)
		if err != nil {
			return err
		}
		if n.Distribution() {
			err = ensureSystemDisk(ctx, r, n, base, adminKey)
		} else {
			err = ensureStateImage(ctx, r, n, adminKey)
		}
		if err != nil {
			return err
		}
		addr := r.cfg.AdminAddress(n)
		inv.Hosts = append(inv.Hosts, InventoryHost{
			Name: n.Name, Role: n.Role, Address: addr, Port: 22, User: "root",
			IdentityFile: identityFile(r.dir), HostKey: hostKey, Netns: r.cfg.Netns(),
		})
		fmt.Fprintf(&known, "%s,%s %s\n", n.Name, addr, hostKey)
	}
	inv.Certificates = map[string][]string{}
	for _, e := range r.cfg.Arrays() {
		if err := ensureArrayState(ctx, r, e); err != nil {
			return err
		}
		if m := e.Array.Management; m != nil && !m.SMcli {
			if inv.Certificates[m.Array], err = certificates(r, e); err != nil {
				return err
			}
		}
	}
	if err := renameio.WriteFile(knownHostsFile(r.dir), []byte(known.String()), 0o600); err != nil {
		return err
	}
	return tool.SaveJSON(inventoryFile(r.dir), inv)
}

// LoadInventory reads the inventory of the rack in dir.
func LoadInventory(dir string) (*Inventory, error) {
	return loadPart[Inventory](dir, "inventory.json")
}

// ensureStateImage makes the node's own layer: an ext4 file system with the overlay's
// upper directory, which has the node's identity. Each of the node's system disks has
// the same bytes, so that the node can make a mirror without copying.
func ensureStateImage(ctx context.Context, r *rack, n *hw.Node, adminKey string) error {
	disks := hw.SystemDisksOf(r.dir, n)
	img := disks[0].Image
	if there, err := allThere(disks); there || err != nil {
		return err
	}
	files, err := identity(r, n, adminKey)
	if err != nil {
		return err
	}
	for i := range files {
		files[i].name = "upper" + files[i].name
	}
	files = append(files, seedFile{"addresses", addressesFile(r.cfg, n), 0o644}, seedFile{"work", "", fs.ModeDir | 0o755})
	part, err := seededExt4(ctx, img, hw.StateBytes, hw.StateBytes-hw.MirrorBytes, files, "-i", "32768", "-J", "size=16")
	if err != nil {
		return err
	}
	for _, d := range disks[1:] {
		if err := tool.Run(ctx, "cp", "--sparse=always", part, d.Image); err != nil {
			return err
		}
	}
	// Rename the first image last: while it is missing, the next call makes all
	// images again.
	return os.Rename(part, img)
}

// seedFile is a file of a node's identity, or an empty directory.
type seedFile struct {
	name, text string
	mode       os.FileMode
}

// identity returns the files that tell a node from others.
func identity(r *rack, n *hw.Node, adminKey string) ([]seedFile, error) {
	hostKey, err := os.ReadFile(hostKeyFile(r.dir, n.Name))
	files := []seedFile{
		{"/etc/hostname", n.Name + "\n", 0o644},
		{"/etc/machine-id", machineID(r.cfg, n) + "\n", 0o444},
		{"/etc/hosts", hostsFile(r.cfg), 0o644},
		{"/etc/ssh/ssh_host_ed25519_key", string(hostKey), 0o600},
		{"/root/.ssh/authorized_keys", adminKey + "\n", 0o600},
	}
	if hw.IsServer(n) && slices.ContainsFunc(r.cfg.Arrays(), func(e *hw.Enclosure) bool { return e.Array.Management != nil && e.Array.Management.SMcli }) {
		files = append(files, seedFile{"/usr/local/bin/SMcli", array.SMcliProgram, 0o755})
	}
	var cards []string
	for _, e := range r.cfg.Enclosures {
		if e.Card != "" && hw.IsServer(n) && e.CabledTo(n.Name) {
			cards = append(cards, e.Card)
		}
	}
	if len(cards) > 0 {
		files = append(files, seedFile{"/usr/local/bin/perccli64", array.Perccli("/cALL show all J nolog", cards), 0o755},
			seedFile{"/usr/local/bin/perccli2", array.Perccli("/cALL show all J", cards), 0o755})
	}
	return files, err
}

// seededExt4 makes an ext4 file system of fsBytes with files, in a file of size bytes
// beside img that the caller renames. Directories below /root are root's alone.
func seededExt4(ctx context.Context, img string, size, fsBytes int64, files []seedFile, options ...string) (part string, err error) {
	seed := filepath.Join(filepath.Dir(img), "seed")
	if err := errors.Join(os.RemoveAll(seed), os.MkdirAll(filepath.Dir(img), 0o700), os.Mkdir(seed, 0o755)); err != nil {
		return "", err
	}
	defer os.RemoveAll(seed)
	for _, f := range files {
		at, mode := filepath.Join(seed, f.name), os.FileMode(0o755)
		if strings.Contains(f.name, "/root/") {
			mode = 0o700
		}
		if f.mode.IsDir() {
			err = os.MkdirAll(at, mode)
		} else if err = os.MkdirAll(filepath.Dir(at), mode); err == nil {
			err = os.WriteFile(at, []byte(f.text), f.mode)
		}
		if err != nil {
			return "", err
		}
	}
	part = img + ".part"
	if err := errors.Join(os.RemoveAll(part), tool.MakeSparse(part, size)); err != nil {
		return "", err
	}
	// Initialize now, on the host, all that ext4 would initialize in the background
	// after its first mount, and keep it small.
	argv := []string{"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", "-d", seed}
	return part, tool.Run(ctx, slices.Concat(argv, options, []string{part, strconv.FormatInt(fsBytes>>10, 10) + "k"})...)
}

// allThere reports whether a node has its system disks. It is an error if only a later
// one is missing, since the node would continue from old data.
func allThere(disks []hw.SystemDisk) (bool, error) {
	if !tool.Exists(disks[0].Image) {
		return false, nil
	}
	for _, d := range disks[1:] {
		if !tool.Exists(d.Image) {
			return false, tool.Refuse("%s is gone: mortar rack down, then up, makes it again", d.Image)
		}
	}
	return true, nil
}

// ensureDisks makes the images of all disks.
func ensureDisks(r *rack) error {
	if err := os.MkdirAll(filepath.Join(r.dir, "disks"), 0o700); err != nil {
		return err
	}
	for _, d := range r.cfg.Images() {
		if err := tool.MakeSparse(hw.DiskImage(r.dir, d.Name), d.Bytes); err != nil {
			return err
		}
	}
	return nil
}
