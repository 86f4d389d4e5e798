package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/command"
)

// notifySeconds bounds the notification program.
const notifySeconds = 30

// Command runs a program for a change. The program gets the change as JSON on its
// standard input and as text in its only argument.
func Command(ctx context.Context, program string, c Change) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return tell(ctx, append(text, '\n'), program, c.String())
}

// Sendmail is the interface of each mail server for local programs.
//
// Source: Linux Standard Base 5.0, sendmail
const Sendmail = "/usr/sbin/sendmail"

// Recipient says whether a text can follow --mail: an address, or a local user.
func Recipient(to string) bool {
	a, err := mail.ParseAddress(to)
	return err == nil && a.Address == to && a.Name == "" || localUser.MatchString(to)
}

// localUser matches names that useradd(8) allows.
var localUser = regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`)

// Mail mails a change by sendmail, a program such as Sendmail.
func Mail(ctx context.Context, sendmail, to string, c Change) error {
	return tell(ctx, letter(to, c), sendmail, "-i", "--", to)
}

// subjectLength is the length of a subject in characters beyond which mail programs cut it.
const subjectLength = 120

// letter is a change as a message of 7-bit text. Lines of its body have at most 76
// characters.
// Auto-Submitted keeps absent people's programs from answering.
//
// Source: RFC 5322; RFC 2045, quoted-printable; RFC 2047; RFC 3834
func letter(to string, c Change) []byte {
	subject := strings.Join(strings.Fields(c.String()), " ") // no line ends within a header
	if r := []rune(subject); len(r) > subjectLength {
		subject = string(r[:subjectLength]) + "..." // "…" would have it encoded
	}
	body := c.Text
	if c.Mend != "" && !c.Ended {
		body += "\n\n" + c.Mend
	}
	body += fmt.Sprintf("\n\n%s, seen %s by mortar watch\n", c.Part, c.Time.Format(time.RFC3339))
	var b bytes.Buffer
	fmt.Fprintf(&b, "To: %s\nSubject: %s\nDate: %s\nAuto-Submitted: auto-generated\n", to,
		strings.ReplaceAll(mime.QEncoding.Encode("utf-8", subject), "?= =?", "?=\n =?"), c.Time.Format(time.RFC1123Z))
	b.WriteString("MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = io.WriteString(w, body) // into memory: cannot fail
	_ = w.Close()
	return bytes.ReplaceAll(b.Bytes(), []byte("\r\n"), []byte("\n")) // local programs end lines so
}

func tell(ctx context.Context, stdin []byte, argv ...string) error {
	out, err := command.Cmd{Argv: argv, Stdin: stdin, Timeout: notifySeconds * time.Second}.Run(ctx)
	switch {
	case err != nil:
		return err
	case out.Code != 0:
		return fmt.Errorf("%s ended with %d: %s", argv[0], out.Code, strings.TrimSpace(out.Stderr))
	}
	return nil
}
