package ocf

import (
	"github.com/mortarhpc/mortar/internal/serve/doubt"
	"github.com/mortarhpc/mortar/internal/serve/lun"
	"github.com/mortarhpc/mortar/internal/serve/lustre"
	"github.com/mortarhpc/mortar/internal/serve/mdraid"
	"github.com/mortarhpc/mortar/internal/serve/nfs"
)

// The sections of a Config, for those who write one. Each is a kind's own.
type (
	MDStorage     = mdraid.MDStorage
	Array         = mdraid.Array
	LUNStorage    = lun.LUNStorage
	LUN           = lun.LUN
	NFSService    = nfs.NFSService
	NFS           = nfs.NFS
	Export        = nfs.Export
	LustreService = lustre.LustreService
	Target        = lustre.Target
)

// What a start tells of blocks in doubt.
type (
	Doubt        = doubt.Doubt
	ArrayInDoubt = doubt.ArrayInDoubt
	Owners       = doubt.Owners
	FileInDoubt  = doubt.FileInDoubt
)
