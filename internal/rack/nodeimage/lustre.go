package nodeimage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// lustreHooks are options with which mmdebstrap installs package files; apt finds
// their dependencies in the archive. mmdebstrap's own hook would leave an empty file
// at each package's path in the image.
// Source: mmdebstrap(1), --include and file-mirror-automount.
func lustreHooks(packages []string) []string {
	if len(packages) == 0 {
		return nil
	}
	argv := []string{"--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount"}
	for _, p := range packages {
		argv = append(argv, `--customize-hook=rm -f "$1"'`+p+`'`)
	}
	return argv
}

// PackageFiles returns the Debian packages in a directory, and the digest of their
// content, which is part of the image's key.
func PackageFiles(dir string) (files []string, digest string, err error) {
	files, err = filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, "", err
	}
	if len(files) == 0 {
		return nil, "", tool.Refuse("%s holds no Debian packages (*.deb): name the directory of Lustre's packages with --lustre", dir)
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, name := range files {
		if strings.ContainsAny(name, ",%'") {
			return nil, "", tool.Refuse("%s: mmdebstrap takes no comma, percent sign or quote in the path of a package", name)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(sum, "%s\n", filepath.Base(name))
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return nil, "", err
		}
	}
	return files, hex.EncodeToString(sum.Sum(nil)), nil
}

func isKernelPackage(file string) bool { return strings.HasPrefix(filepath.Base(file), "linux-image-") }

// lustreFits refuses Lustre packages for other kernels than the system's own.
func lustreFits(root, kernel string) error {
	var have []string
	err := filepath.WalkDir(filepath.Join(root, "lib/modules"), func(p string, d os.DirEntry, err error) error {
		if err == nil && (d.Name() == "lustre.ko" || strings.HasPrefix(d.Name(), "lustre.ko.")) {
			rel, relErr := filepath.Rel(filepath.Join(root, "lib/modules"), p)
			have, err = append(have, strings.Split(rel, "/")[0]), relErr
		}
		return err
	})
	if err != nil {
		return err
	}
	if slices.Contains(have, kernel) {
		return nil
	}
	what := "no kernel"
	if len(have) > 0 {
		what = "kernel " + strings.Join(have, ", ")
	}
	return tool.Refuse("the node image has kernel %s, and the packages of --lustre hold Lustre for %s: build lustre-server-modules-%s, or put the package of the kernel that they are for beside them", kernel, what, kernel)
}
