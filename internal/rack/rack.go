package rack

import "github.com/mortarhpc/mortar/internal/rack/tool"

// What callers need of the package below.
type (
	RefusedError = tool.RefusedError
	Event        = tool.Event
	Progress     = tool.Progress
)
