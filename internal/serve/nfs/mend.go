package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Repairs are in the order of the layers.
func (s *Kind) Repairs() []unit.Repair {
	return []unit.Repair{
		{Name: unit.TheName, What: "the line of " + s.cfg.Prefix().Addr().String() + " in " + linux.HostsFile, Part: "", Missing: s.unnamed, Put: s.name},
		{Name: "state", What: "NFS state", Part: "nfs-state", Missing: s.unbound, Put: s.bindAgain},
		{Name: unit.TheAddress, What: "service address " + s.cfg.Address, Part: "address", Missing: s.unaddressed, Put: s.addressAgain},
	}
}

// names is what the host must find by the service address. sm-notify speaks to NFSv3
// clients by the name of the address; they know the server by its address, so that must be
// its name, or they do not reclaim their locks.
func (s *Kind) names() (address string, names []string) {
	address = s.cfg.Prefix().Addr().String()
	return address, []string{address, s.cfg.NFS.Scope}
}

// unnamed says whether the file gives the address no name, or another one. Which further
// names there are is apply's to change.
func (s *Kind) unnamed() bool {
	text, err := s.hosts()
	address, names := s.names()
	have := linux.HostNames(text, address)
	return err == nil && (len(have) == 0 || have[0] != names[0])
}

// hosts is the text of the host's file of names; without one it is empty.
func (s *Kind) hosts() (string, error) {
	b, err := s.K.ReadFile(linux.HostsFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(b), err
}

func (s *Kind) name(context.Context) error {
	text, err := s.hosts()
	if err != nil {
		return err
	}
	address, names := s.names()
	return s.K.Save(linux.HostsFile, []byte(linux.SetHostNames(text, address, names, "put back by the watcher")))
}

// unbound says whether a service that serves lacks what its daemons work through.
func (s *Kind) unbound() bool {
	st, err := s.bindState()
	return (err != nil || st != unit.Running) && (s.threads() > 0 || s.Addressed())
}

// bindAgain mounts what is missing, and leaves alone what runs: unlike startState it stops
// no nfsd, and changes nothing on the volume.
func (s *Kind) bindAgain(context.Context) error {
	if err := s.kernelMounts(); err != nil {
		return err
	}
	st, err := s.bindState()
	if err == nil && st == unit.Stopped && s.cfg.Namespace == "" {
		if err := s.K.Mount(s.cfg.StateDir, nfsDir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount --bind %s %s: %w", s.cfg.StateDir, nfsDir, err)
		}
		st, err = s.bindState()
	}
	if err == nil && st != unit.Running {
		err = fmt.Errorf("%s is not mounted although that succeeded", nfsDir)
	}
	return err
}

// unaddressed says whether nfsd serves, and clients do not reach it.
func (s *Kind) unaddressed() bool {
	name, _, err := s.Present()
	return err == nil && name == "" && s.threads() > 0
}

// addressAgain asks first who has the address, as a start does.
func (s *Kind) addressAgain(ctx context.Context) error {
	if err := s.address.probe(ctx); err != nil {
		return err
	}
	return s.address.startAddress(ctx)
}
