package rack

import (
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// What callers need of the packages below.
type (
	Config       = hw.Config
	Storage      = hw.Storage
	StorageGroup = hw.StorageGroup
	StorageLUN   = hw.StorageLUN
	RefusedError = tool.RefusedError
	Event        = tool.Event
	Progress     = tool.Progress
)

// RoleServer is the role of a server.
const RoleServer = hw.RoleServer

// FromSpec returns the virtual hardware for a spec: see hw.FromSpec.
var FromSpec = hw.FromSpec
