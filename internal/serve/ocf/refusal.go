package ocf

import (
	"errors"

	"github.com/mortarhpc/mortar/internal/base/pr"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// codeOf is the code of an error. Who asks whether a disk is taken knows no codes.
func codeOf(err error) refusal.Code {
	if errors.Is(err, pr.ErrTaken) || errors.Is(err, lun.ErrForgot) {
		return refusal.Taken
	}
	return refusal.CodeOf(err)
}
