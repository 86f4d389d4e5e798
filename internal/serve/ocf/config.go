// Package ocf is Mortar's OCF resource agent. Pacemaker runs it on a server as
// ocf:mortar:service. It starts and stops one service of a brick in one
// process, layer by layer, and checks each layer. Its Config holds all it
// needs: it reads neither spec nor design, and it never decides where a service
// runs.
//
// A service has a kind (an NFS export tree; targets of Lustre) and its storage
// has a kind (md arrays; LUNs), with or without a volume group and a cache. Two
// interfaces in kinds.go hide the kinds, with one table each. A kind's layers,
// its section of the config and the check of that section are in the kind's own
// files; no other code tests for a kind.
//
// The agent guards data by refusing: an array that lacks members beyond its
// redundancy, a LUN of another size, a volume group that belongs to an unknown
// host, a file system with another UUID or a target with another name, a device
// mounted twice, a service address that another host answers for. It never
// forces: no `mdadm --force`, no lazy unmount, no file system repair. If a
// layer does not stop, it reports the service as not stopped, so that Pacemaker
// fences the server.
package ocf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/conffile"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Config is the file that the agent's `config` parameter names. apply writes it
// on each server; only root may read it.
//
// The service's kind and its storage's kind follow from the keys: exactly one
// storage section and exactly one service section are present. All keys are on
// one level because files of builds without kinds have that form.
// them.
type Config struct {
	Service string `json:"service"`

	*mdraid.MDStorage
	*lun.LUNStorage
	VolumeGroup
	// Reservations has the key of each node, with which LUNs and disks are reserved for the
	// server that has the service; empty: they are not. LUNs without a volume group need
	// it.
	Reservations map[string]string `json:"reservations,omitempty"`
	// Cache is the config file of the volume's cache (package cache); "" for
	// none.
	Cache string `json:"cache,omitempty"`

	*nfs.NFSService
	*lustre.LustreService

	// Nodes maps each cluster node to its public address, by which the agent
	// finds the interface for the service address.
	Nodes map[string]string `json:"nodes"`
	// Rings maps each cluster node to its addresses on Corosync's networks, and
	// Fences lists the addresses of all fence devices: the watcher keeps a
	// server without a link to any of the networks from fencing.
	Rings  map[string][]string `json:"rings,omitempty"`
	Fences []string            `json:"fences,omitempty"`
	// StartSeconds is how long a start may take that does not get on; 0: as long as Pacemaker
	// grants. Pacemaker grants more, for pieces that get on (unit.Progress).
	StartSeconds int `json:"start_seconds,omitempty"`
	// Needs are features without which an agent must not start the service; see features.
	Needs []string `json:"needs,omitempty"`
}

// Load reads and checks a config file. It ignores keys that it does not know. A
// start calls Able too.
func Load(file string) (*Config, error) { return conffile.Load(file, (*Config).check) }

// LoadKept is Load for a monitor, a stop and the watcher. It falls back to the last good copy:
// see conffile.LoadKept.
func LoadKept(file string) (*Config, error) { return conffile.LoadKept(file, (*Config).check) }

// Parse checks src, the content of file, as Load does.
func Parse(file string, src []byte) (*Config, error) {
	return conffile.Parse(file, src, (*Config).check)
}

// features are what configs may need: what came after release 0.2.0 and loses data if an
// agent ignores its keys. A key without a line here is one that an agent may ignore. The
// agents up to 0.2.0 refuse every key that they do not know.
var features []string

// needJournal is a feature that earlier versions had.
const needJournal = "journal"

// Able says why this version of the agent cannot start the service; nil: it can.
func (c *Config) Able() error {
	for _, name := range c.Needs {
		if name == needJournal {
			return fmt.Errorf("an earlier version of mortar has given service %s a write journal: take it off first, as docs/operations.md says (A write journal of an earlier version)", c.Service)
		}
		if !slices.Contains(features, name) {
			return fmt.Errorf("service %s needs %q, which this version of mortar does not know: a newer one has configured it; run its `mortar apply`", c.Service, name)
		}
	}
	return nil
}

// check finds every fault of a config that is visible without a host.
func (c *Config) check() error {
	var f unit.Faults
	f.Word("service", c.Service)
	on, err1 := storageKinds.kindOf(c)
	serve, err2 := serviceKinds.kindOf(c)
	if err := errors.Join(err1, err2); err != nil {
		f.Add("%w", err)
	} else {
		on.check(c, &f)
		serve.check(c, &f)
		if have, want := on.names(c), serve.names(c); c.VG == "" && !(len(have) == 1 && slices.Equal(want, []string{""})) && !sameNames(have, want) {
			f.Add("without a volume group each of %s carries one of %q", strings.Join(have, ", "), want)
		}
	}
	c.checkReservations(&f)
	c.VolumeGroup.check(&f)
	if c.Cache != "" && c.LV == "" {
		f.Add("cache %s: a cache is in front of one logical volume (vg, lv)", c.Cache)
	}
	if c.StartSeconds < 0 {
		f.Add("start_seconds %d: 0 or more are needed", c.StartSeconds)
	}
	if len(c.Nodes) == 0 {
		f.Add("nodes is empty")
	}
	for n, a := range c.Nodes {
		f.Word("node name", n)
		f.Addresses("nodes."+n, a)
	}
	for n, as := range c.Rings {
		f.Addresses("rings."+n, as...)
	}
	f.Addresses("fences", c.Fences...)
	return errors.Join(f...)
}

// sameNames says whether two lists have the same names, each once.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
