package linux

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestDropped(t *testing.T) {
	d := Dropped{Node: "nfs2", Group: "b-r0", Serial: "MA01", Device: "/dev/mapper/35000c500a0000001", At: time.Date(2026, 11, 25, 10, 0, 7, 0, time.UTC), TookMS: 2400, PeersMS: 9}
	cib := func(name, value string) *CIB {
		c, err := ParseCIB(fmt.Appendf(nil, `<cib><configuration><nodes><node id="1" uname="nfs1"/><node id="2" uname="nfs2"><instance_attributes id="a">
<nvpair id="x" name="mortar-fence-proven-1" value="2026-11-25T10:00:07Z 3.1s ab"/><nvpair id="y" name=%q value=%q/></instance_attributes></node></nodes></configuration></cib>`, name, value))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if got := cib(d.Attr(), d.String()).Dropped(); !slices.Equal(got, []Dropped{d}) {
		t.Errorf("%s=%q: %+v", d.Attr(), d, got)
	}
	for _, bad := range []string{"", "MA01", "MA01 /dev/x yesterday 1ms 1ms", "MA01 /dev/x 2026-11-25T10:00:07Z fast 1ms", "MA01 /dev/x 2026-11-25T10:00:07Z 1ms fast"} {
		if got := cib(d.Attr(), bad).Dropped(); got != nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	if got := (*CIB)(nil).Dropped(); got != nil {
		t.Errorf("%+v", got)
	}
}
