package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// LustreSource is where the packages of Lustre come from: files of a directory, or a repository.
type LustreSource struct {
	Directory  string // as the spec has it
	Files      []resource.PackageFile
	Repository string
	Key        []byte
}

// maxPackage bounds a package in bytes: it travels to a host in one line of JSON, in base64.
const maxPackage = 40 << 20

// LustreSourceOf reads what lustre.packages names: the directory with the digest of each package, or the
// repository's key. It is nil if the spec names nothing. Errors have their place in the spec.
func LustreSourceOf(s *spec.Spec) (*LustreSource, error) {
	p := s.LustrePackages()
	if p == nil {
		return nil, nil
	}
	local := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(s.File), name)
	}
	bad := func(at, mend string, err error) error {
		line, col := s.Pos("lustre.packages." + at)
		return spec.Errors{{File: s.File, Line: line, Col: col, Msg: err.Error(), Mend: mend}}
	}
	if p.Repository != "" {
		key, err := os.ReadFile(local(p.Key))
		if err != nil {
			return nil, bad("key", "name the file with the repository's OpenPGP key, relative to the spec", err)
		}
		return &LustreSource{Repository: p.Repository, Key: key}, nil
	}
	files, err := packageFiles(local(p.Directory))
	if err == nil && len(resource.KernelsOf(files)) == 0 {
		err = fmt.Errorf("%s holds no modules of Lustre (lustre-server-modules-KERNEL_VERSION_amd64.deb)", p.Directory)
	}
	if err != nil {
		return nil, bad("directory", "name the directory of Lustre's Debian packages, relative to the spec", err)
	}
	return &LustreSource{Directory: p.Directory, Files: files}, nil
}

// packageFiles are the Debian packages of a directory. A file's name says what is in it.
//
// Source: dpkg-deb(1), --build: package_version_arch.deb
func packageFiles(dir string) ([]resource.PackageFile, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	var out []resource.PackageFile
	for _, name := range names {
		words := strings.Split(strings.TrimSuffix(filepath.Base(name), ".deb"), "_")
		if len(words) != 3 {
			return nil, fmt.Errorf("%s is not named package_version_architecture.deb", name)
		}
		f := resource.PackageFile{Name: words[0], Version: words[1], Path: name}
		if f.SHA256, f.Size, err = digestOf(name); err != nil {
			return nil, err
		}
		if f.Size > maxPackage {
			return nil, fmt.Errorf("%s has %d MiB, and mortar copies packages of at most %d: strip the modules of debug symbols, or make a repository", name, f.Size>>20, maxPackage>>20)
		}
		out = append(out, f)
	}
	return out, nil
}

func digestOf(name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// packages are those of one host.
func (l *LustreSource) packages(names, instead []string) *resource.LustrePackages {
	p := &resource.LustrePackages{Names: names, Instead: instead}
	if l != nil {
		p.Directory, p.Files, p.Repository, p.Key = l.Directory, l.Files, l.Repository, l.Key
	}
	return p
}

// newestKernel is one that the packages of a directory fit, "" without them.
func (l *LustreSource) newestKernel() string {
	if l == nil {
		return ""
	}
	k := resource.KernelsOf(l.Files)
	if len(k) == 0 {
		return ""
	}
	return k[len(k)-1]
}

// Show says, for people, what is there and which kernel it is for.
func (l *LustreSource) Show(w io.Writer) {
	if l.Repository != "" {
		fmt.Fprintf(w, "\nLUSTRE PACKAGES  from repository %s\n  apply installs those for the kernel that each host runs; a host whose kernel it has none for is refused\n", l.Repository)
		return
	}
	fmt.Fprintf(w, "\nLUSTRE PACKAGES  in %s, for kernel %s\n", l.Directory, strings.Join(resource.KernelsOf(l.Files), ", "))
	for _, f := range l.Files {
		fmt.Fprintf(w, "  %s %s\n", f.Name, f.Version)
	}
}
