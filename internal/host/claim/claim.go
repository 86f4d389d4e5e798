// Package claim keeps, on each server of a brick, who changes the brick now and which spec was
// applied last, so that two administrators do not undo each other's work. It knows no other
// server, and does not compare specs.
package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mortarhpc/mortar/internal/base/durable"
	"github.com/mortarhpc/mortar/internal/base/strictjson"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// File returns where a server keeps its State. A binary that is not where Mortar puts it, as
// that of a test, keeps it beside itself.
func File() string {
	exe, err := os.Executable()
	if dir := filepath.Dir(exe); err == nil && dir != "/usr/local/lib/mortar" {
		return filepath.Join(dir, "brick.json")
	}
	return "/var/lib/mortar/brick.json"
}

// State is what a server knows of its brick; the zero State: no machine claims it, and no spec was
// recorded.
type State struct {
	Claim   *Claim   `json:"claim,omitempty"`
	Applied *Applied `json:"applied,omitempty"`
}

// Claim says that a command changes the brick.
type Claim struct {
	// Holder identifies the machine and the spec's directory that the command runs from.
	// Commands of one Holder keep each other out by a lock there.
	Holder string `json:"holder"`
	// By names the person, the machine and the command: "alice@adm1 (mortar apply)".
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

func (c *Claim) String() string { return fmt.Sprintf("%s since %s", c.By, c.since().Words) }

func (c *Claim) since() resource.Named {
	return resource.Named{ID: c.Since.UTC().Format(time.RFC3339), Words: c.Since.Local().Format(time.DateTime)}
}

// Applied is the spec that an apply brought to the brick, or began to.
type Applied struct {
	// Generation counts the specs of the brick from 1.
	Generation int       `json:"generation"`
	Source     []byte    `json:"source"` // the spec's text
	By         string    `json:"by"`
	At         time.Time `json:"at"`
	// Done: the apply came to its end.
	Done bool `json:"done"`
}

// Read returns the state in a file; one that does not exist is a zero State.
func Read(path string) (s State, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err = json.Unmarshal(b, &s); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return s, err
}

// MayAct refuses the actions of every holder but the one that claims the brick.
func (s State) MayAct(holder string) error {
	if s.Claim == nil || s.Claim.Holder == holder {
		return nil
	}
	return resource.Refuse("brick-claimed", resource.With{"by": s.Claim.By, "since": s.Claim.since()})
}

// Change does one request to the file, which the caller guards against other requests: take
// (text is a Claim), give, or record (text is an Applied).
func Change(path, holder, what string, text []byte) error {
	s, err := Read(path)
	if err != nil {
		return err
	}
	if err := s.MayAct(holder); err != nil {
		return err
	}
	switch what {
	case "take":
		s.Claim = &Claim{}
		if err := strictjson.Decode(text, s.Claim); err != nil {
			return err
		}
		s.Claim.Holder = holder
	case "give":
		if s.Claim == nil {
			return nil
		}
		s.Claim = nil
	case "record":
		if s.Claim == nil {
			return errors.New("no administrator claims the brick: take it first")
		}
		s.Applied = &Applied{}
		if err := strictjson.Decode(text, s.Applied); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%q: take, give or record is needed", what)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Write(path, durable.File{Content: b, Mode: 0o600})
}
