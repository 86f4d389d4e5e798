package distro

import (
	"slices"
	"testing"
)

// Output of Debian 13.
func TestNewer(t *testing.T) {
	apt := `NOTE: This is only a simulation!
Reading package lists...
The following packages will be upgraded:
  libc6 linux-image-cloud-amd64
Inst libc6 [2.41-12] (2.41-12+deb13u1 Debian:13.2/stable [amd64])
Conf libc6 (2.41-12+deb13u1 Debian:13.2/stable [amd64])
Inst linux-image-6.12.107+deb13-cloud-amd64 (6.12.107-1 Debian:13.2/stable [amd64])
`
	if got := aptNewer(apt); !slices.Equal(got, []string{"libc6 2.41-12+deb13u1", "linux-image-6.12.107+deb13-cloud-amd64 6.12.107-1"}) {
		t.Errorf("%q", got)
	}
}
