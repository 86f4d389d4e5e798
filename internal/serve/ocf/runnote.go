package ocf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
)

// runDir holds files that need not outlive a boot.
const runDir = "/run/mortar"

// runNote is a file below runDir by which one action tells a later one, or the watcher, what
// it has done. It outlives the process and no boot. A server that is upgraded has the notes
// of the release before: their names and content stay.
type runNote struct {
	k    kernel.Host
	log  *steps
	file string
}

// runNote is a note of this service. kind begins its name, ext ends it.
func (s *Host) runNote(kind, ext string) runNote {
	return runNote{s.k, s.log, runDir + "/" + kind + "-" + s.Service + ext}
}

// read gives the text of the note, and whether there is one.
func (n runNote) read() (text string, there bool) {
	b, err := n.k.ReadFile(n.file)
	return string(b), err == nil
}

func (n runNote) there() bool {
	_, there := n.read()
	return there
}

func (n runNote) write(text string) error { return n.k.Save(n.file, []byte(text)) }

// remove removes the note if there is one.
func (n runNote) remove() error {
	if !n.there() {
		return nil
	}
	return n.k.Remove(n.file)
}

// forget is remove. It logs an error: a note that stays does less harm than an action that
// fails.
func (n runNote) forget() {
	if err := n.remove(); err != nil {
		n.log.note("%v", err)
	}
}

// load reads the note's JSON into v. Without a note v stays as it is.
func (n runNote) load(v any) error {
	b, err := n.k.ReadFile(n.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.file, err)
	}
	return nil
}

// save writes v as JSON.
func (n runNote) save(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return n.k.Save(n.file, b)
}

// overdueNote has the uptime, in seconds, at which this server resets itself unless
// the service has been stopped.
func (s *Host) overdueNote() runNote { return s.runNote("unstopped", "") }

// refusedNote exists if the agent refused the last start on this server for such a
// cause, or the watcher has seen that the server is not able to serve, or a start or monitor
// took too long. Neither the note nor Pacemaker's failure outlives a boot.
func (s *Host) refusedNote() runNote { return s.runNote("refused", "") }

// badConfigNote has the path of the config for which a start on this server was refused.
func (s *Host) badConfigNote() runNote { return s.runNote("config", "") }
