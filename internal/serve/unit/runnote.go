package unit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// RunDir holds files that need not outlive a boot.
const RunDir = "/run/mortar"

// runNote is a file below RunDir by which one action tells a later one, or the watcher, what
// it has done. It outlives the process and no boot. A server that is upgraded has the notes
// of the release before: their names and content stay.
type Note struct {
	k    kernel.Host
	log  *Steps
	File string
}

// RunNote is a note of this service. kind begins its name, ext ends it.
func (s *Host) RunNote(kind, ext string) Note {
	return Note{s.K, s.Log, RunDir + "/" + kind + "-" + s.Service + ext}
}

func (n Note) Read() (text string, there bool) {
	b, err := n.k.ReadFile(n.File)
	return string(b), err == nil
}

func (n Note) There() bool {
	_, there := n.Read()
	return there
}

func (n Note) Write(text string) error { return n.k.Save(n.File, []byte(text)) }

func (n Note) Remove() error {
	if !n.There() {
		return nil
	}
	return n.k.Remove(n.File)
}

// Forget is remove. It logs an error: a note that stays does less harm than an action that
// fails.
func (n Note) Forget() {
	n.log.NoteErr(n.Remove(), "")
}

// Load reads the note's JSON into v. Without a note v stays as it is.
func (n Note) Load(v any) error {
	b, err := n.k.ReadFile(n.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.File, err)
	}
	return nil
}

// Save writes v as JSON.
func (n Note) Save(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return n.k.Save(n.File, b)
}

// OverdueNote has the uptime, in seconds, at which this server resets itself unless
// the service has been stopped.
func (s *Host) OverdueNote() Note { return s.RunNote("unstopped", "") }

// RefusedNote exists if the agent refused the last start on this server for such a
// cause, or the watcher has seen that the server is not able to serve, or a start or monitor
// took too long. Neither the note nor Pacemaker's failure outlives a boot.
func (s *Host) RefusedNote() Note { return s.RunNote("refused", "") }

// BadConfigNote has the path of the config for which a start on this server was refused.
func (s *Host) BadConfigNote() Note { return s.RunNote("config", "") }
