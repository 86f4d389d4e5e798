// Package backup writes everything of a brick that cannot be derived again into one
// file: the spec, the secrets that it names, the keys that Mortar made, and the
// servers' state (the cluster's configuration with its fencing proofs, LVM's and
// md's metadata). It reads such a file back, and refuses a damaged one.
//
// It also makes the archive of a bug report, which holds none of the secrets.
//
// A backup does not contain the users' data. The package changes no host.
package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/converge/plan"
	"github.com/mortarhpc/mortar/internal/host"
)

// schema of the manifest.
const schema = "mortar.backup/v1"

const (
	manifestName = "manifest.json"
	specName     = "brick.yaml"
	serversDir   = "servers"  // the servers' state
	absoluteDir  = "absolute" // files that the spec names outside its directory
	// most bounds each file and the whole backup on reading, in bytes.
	most = 64 << 20
)

// File is a file in a backup.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	text   []byte
}

// Manifest describes a backup.
type Manifest struct {
	Schema  string    `json:"schema"`
	Brick   string    `json:"brick"`
	Time    time.Time `json:"time"`
	Version string    `json:"mortar_version"`
	Files   []File    `json:"files"`
	// Missing has the files and states that could not be read, with the reason.
	Missing []string `json:"missing"`
}

// Backup is a backup in memory.
type Backup struct {
	Manifest
	// hide removes secrets from all that is added; nil: a backup holds them.
	hide func(text []byte) []byte
}

// begin starts an archive without files.
func begin(schema string, s *spec.Spec, version string, now time.Time) *Backup {
	return &Backup{Manifest: Manifest{Schema: schema, Brick: s.Name, Time: now.UTC().Truncate(time.Second), Version: version, Missing: []string{}}}
}

func (b *Backup) add(name string, text []byte) {
	if b.hide != nil {
		text = b.hide(text)
	}
	b.Files = append(b.Files, File{name, fmt.Sprintf("%x", sha256.Sum256(text)), text})
}

func (b *Backup) miss(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if b.hide != nil {
		what = string(b.hide([]byte(what)))
	}
	b.Missing = append(b.Missing, what)
}

// Text returns the content of a file; nil if the backup has no file of that name.
func (b *Backup) Text(name string) []byte {
	f, _ := lists.First(b.Files, func(f File) bool { return f.Path == name })
	return f.text
}

// Local starts a backup with the files on this machine.
func Local(s *spec.Spec, version string, now time.Time) *Backup {
	b := begin(schema, s, version, now)
	b.add(specName, s.Source)
	for _, name := range filesOf(s) {
		at, to := besideSpec(s, name), filepath.ToSlash(name)
		if !filepath.IsLocal(name) {
			abs, err := filepath.Abs(at)
			if err != nil {
				b.miss("%s: %v", name, err)
				continue
			}
			to = absoluteDir + filepath.ToSlash(abs)
		}
		b.read(at, to)
	}
	state := plan.StateDir(s)
	keys, err := os.ReadDir(filepath.Join(state, "secrets"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.miss("keys that Mortar made: %v", err)
	}
	for _, k := range keys {
		b.read(filepath.Join(state, "secrets", k.Name()), path.Join(".mortar", s.Name, "secrets", k.Name()))
	}
	if inventory := host.InventoryFile(s); exists(inventory) {
		b.read(inventory, path.Join(".mortar", s.Name, "rack", "inventory.json"))
	}
	return b
}

// besideSpec is the path of a file that a spec names.
func besideSpec(s *spec.Spec, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.File), name)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (b *Backup) read(at, to string) {
	text, err := os.ReadFile(at)
	if err != nil {
		b.miss("%v", err)
		return
	}
	b.add(to, text)
}

// filesOf returns the files of a spec that cannot be made again: secrets, and the
// trusted host keys. A private SSH key is no part of the brick.
func filesOf(s *spec.Spec) []string {
	var out []string
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, name := range secretsOf(s) {
		if len(s.PasswordCommand) == 0 || exists(besideSpec(s, name)) {
			add(name) // else the password command has it
		}
	}
	if k := s.SSH.KnownHosts; k != "" && !strings.HasPrefix(k, "~") {
		add(k)
	}
	return out
}

// secretsOf returns the files of secrets that a spec names.
func secretsOf(s *spec.Spec) []string {
	var out []string
	for _, v := range s.Servers {
		if v.BMC != nil {
			out = append(out, v.BMC.PasswordFile)
		}
		for _, f := range v.Fencing {
			out = slices.AppendSeq(out, maps.Values(f.Secrets))
		}
	}
	for _, p := range s.PDUs {
		out = append(out, p.CommunityFile)
		if p.SNMP != nil {
			out = append(out, p.SNMP.AuthFile, p.SNMP.PrivacyFile)
		}
	}
	for _, a := range s.Arrays {
		out = append(out, a.PasswordFile)
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

// Demands returns what a plan for a spec has this machine run, or read outside of the spec's
// directory and send to the hosts that the spec names: nothing in a backup shows who wrote it.
func Demands(s *spec.Spec) []string {
	var out []string
	need := func(what string) {
		if !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	files := secretsOf(s)
	for _, name := range files {
		if len(s.PasswordCommand) > 0 && !exists(besideSpec(s, name)) {
			need(fmt.Sprintf("run password_command %q", s.PasswordCommand))
		}
	}
	if p := s.LustrePackages(); p != nil {
		files = append(files, p.Key, p.Directory)
	}
	for _, name := range files {
		if name != "" && !filepath.IsLocal(name) {
			need("read " + name)
		}
	}
	return out
}

// Servers adds the servers' state. A silent server goes into Missing.
func (b *Backup) Servers(ctx context.Context, d *design.Design, hosts host.ByName) {
	for i := range d.Pairs {
		p := &d.Pairs[i]
		for _, server := range p.Servers {
			s := hosts(server)
			if _, err := s.Hello(ctx); err != nil {
				b.miss("server %s: %v", server, err)
				continue
			}
			at := func(name string) string { return path.Join(serversDir, server, name) }
			if p.HA != nil {
				b.ask(ctx, s, at("cib.xml"), "cibadmin", "--query")
			}
			for j := range p.Services {
				svc := &p.Services[j]
				for _, g := range d.MDGroups(svc) {
					b.ask(ctx, s, at("md-"+g.Name+".txt"), "mdadm", "--detail", "/dev/md/"+g.Name)
				}
				if vg := svc.Storage.VG; vg != "" {
					if text, err := s.Read(ctx, "/etc/lvm/backup/"+vg); err == nil { // only servers that have had the VG have the file
						b.add(at("lvm-"+vg+".txt"), []byte(text))
					}
				}
			}
		}
	}
}

// ask adds the output of a successful command. A non-zero exit code is no error,
// since a server without the service has no arrays. A failed query goes into Missing.
func (b *Backup) ask(ctx context.Context, s *host.Session, to string, argv ...string) {
	out, err := s.Query(ctx, argv...)
	switch {
	case err != nil:
		b.miss("%s: %s: %v", s.Name, strings.Join(argv, " "), err)
	case out.Code == 0:
		b.add(to, []byte(out.Stdout))
	}
}

// Write writes a backup as a compressed archive of tar(1).
func (b *Backup) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	text, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range append([]File{{Path: manifestName, text: append(text, '\n')}}, b.Files...) {
		h := &tar.Header{Name: path.Join(b.Brick, f.Path), Mode: 0o600, Size: int64(len(f.text)), ModTime: b.Time, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// Save writes a backup to a file atomically, readable by its owner alone.
func (b *Backup) Save(file string) error {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o600), renameio.WithTempDir(filepath.Dir(file)))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // removes the temporary file if the rename did not happen
	if err := b.Write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// Load reads a backup from a file. An error names the file.
func Load(file string) (*Backup, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}

// Read reads a backup. It refuses a truncated or damaged one.
func Read(r io.Reader) (*Backup, error) {
	files, err := unpack(r)
	if err != nil {
		return nil, fmt.Errorf("this is no backup of Mortar's, or a damaged one: %w", err)
	}
	b := &Backup{}
	if err := json.Unmarshal(files[manifestName], &b.Manifest); err != nil || b.Schema != schema {
		return nil, fmt.Errorf("this is no backup of Mortar's, or one of another version: %s with schema %q: %w", manifestName, b.Schema, err)
	}
	for i := range b.Files {
		f := &b.Files[i]
		text, ok := files[f.Path]
		if !ok {
			return nil, fmt.Errorf("the backup is damaged: %s is missing", f.Path)
		}
		if fmt.Sprintf("%x", sha256.Sum256(text)) != f.SHA256 {
			return nil, fmt.Errorf("the backup is damaged: %s is not as it was", f.Path)
		}
		if !filepath.IsLocal(f.Path) {
			return nil, fmt.Errorf("the backup has a file outside of its directory: %s", f.Path)
		}
		f.text = text
	}
	if b.Text(specName) == nil {
		return nil, errors.New("the backup has no spec")
	}
	return b, nil
}

// unpack returns the files of an archive, below its single top directory.
func unpack(r io.Reader) (map[string][]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	t := tar.NewReader(z)
	files := map[string][]byte{}
	left := int64(most)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s is no plain file", h.Name)
		}
		if left -= h.Size; left < 0 {
			return nil, fmt.Errorf("it holds more than %d MiB", most>>20)
		}
		_, name, ok := strings.Cut(h.Name, "/")
		if !ok {
			return nil, fmt.Errorf("%s is in no directory", h.Name)
		}
		var text bytes.Buffer
		if _, err := io.CopyN(&text, t, h.Size); err != nil {
			return nil, err
		}
		files[name] = text.Bytes()
	}
}

// Restore writes the files of a backup into dir, which must be empty or missing. It
// also writes the servers' state there, for reading only. It returns the path of the
// spec.
func (b *Backup) Restore(dir string) (specFile string, err error) {
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return "", fmt.Errorf("%s is not empty: name a new directory", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, f := range b.Files {
		to := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, f.text, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, specName), nil
}

// Elsewhere returns the original paths of files that the spec names outside its
// directory. The administrator must put these back.
func (b *Backup) Elsewhere() []string {
	var out []string
	for _, f := range b.Files {
		if rest, ok := strings.CutPrefix(f.Path, absoluteDir); ok {
			out = append(out, rest)
		}
	}
	return out
}
