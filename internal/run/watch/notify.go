package watch

import (
	"context"
	"encoding/json"
	"fmt"
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

// Mail mails a change through sendmail(8) of this machine.
func Mail(ctx context.Context, to string, c Change) error {
	body := c.Text
	if c.Mend != "" && !c.Ended {
		body += "\n\n" + c.Mend
	}
	subject := strings.NewReplacer("\r", " ", "\n", " ").Replace(c.String())
	if r := []rune(subject); len(r) > 120 {
		subject = string(r[:120]) + "…"
	}
	message := fmt.Sprintf("To: %s\nSubject: %s\nContent-Type: text/plain; charset=utf-8\nDate: %s\n\n%s\n\nseen %s by mortar watch\n",
		to, subject, c.Time.Format(time.RFC1123Z), body, c.Time.Format(time.RFC3339))
	return tell(ctx, []byte(message), "/usr/sbin/sendmail", "-i", "--", to)
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
