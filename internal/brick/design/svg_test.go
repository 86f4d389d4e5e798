package design

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/examples"
)

// Every picture is well-formed XML, has each disk at its place and each
// server, and is the same each time.
func TestSVG(t *testing.T) {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		d := example(t, strings.TrimSuffix(f, ".yaml"))
		var a, b bytes.Buffer
		if err := errors.Join(SVG(&a, d), SVG(&b, d)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: two pictures differ", f)
		}
		text := a.String()
		dec := xml.NewDecoder(&a)
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
		}
		for _, k := range d.Disks {
			if n := strings.Count(text, ": "+k.Serial+", "); n != 1 {
				t.Errorf("%s: disk %s is there %d times", f, k.Serial, n)
			}
		}
		for i := range d.Spec.Enclosures {
			e := &d.Spec.Enclosures[i]
			for _, s := range d.Spec.Servers {
				if p := (&picture{d: d}); len(d.Arrays) > 0 || !p.reaches(s.Name, e) {
					continue
				}
				for module := range 2 {
					if want := fmt.Sprintf("%s to I/O module %d of enclosure %s<", s.Name, module+1, e.Name); !strings.Contains(text, want) {
						t.Errorf("%s: no cable of %s", f, want)
					}
				}
			}
		}
		for _, s := range d.Spec.Servers {
			if !strings.Contains(text, ">"+s.Name+"<") {
				t.Errorf("%s: no server %s", f, s.Name)
			}
		}
	}
}

// A name cannot break out of the text it is written in.
func TestSVGEscapes(t *testing.T) {
	d := example(t, "nfs")
	d.Spec.Servers[0].Model = `<script>"&`
	var b bytes.Buffer
	if err := SVG(&b, d); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script>") {
		t.Error("markup of the spec in the picture")
	}
}
