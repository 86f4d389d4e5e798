package ipmi

import (
	"strings"

	"github.com/mortarhpc/mortar/internal/base/health"
)

// states are ipmitool's words for states and events, in lower case. Words that are good
// for one sensor and bad for another ("State Asserted", "Disabled", "Unspecified") are not
// here: no source says what they tell.
//
// Source: ipmitool, include/ipmitool/ipmi_sel.h (tables 42-2 and 42-3 of IPMI 2.0)
var states = map[string]health.Level{
	"transition to idle": health.OK, "transition to active": health.OK, "transition to busy": health.OK, "state deasserted": health.OK,
	"predictive failure deasserted": health.OK, "limit not exceeded": health.OK, "performance met": health.OK, "transition to ok": health.OK,
	"monitor": health.OK, "informational": health.OK, "device absent": health.OK, "device present": health.OK, "device enabled": health.OK,
	"device inserted/device present": health.OK, "device removed/device absent": health.OK, "transition to running": health.OK,
	"transition to in test": health.OK, "transition to on line": health.OK, "transition to power save": health.OK, "fully redundant": health.OK,
	"d0 power state": health.OK, "d1 power state": health.OK, "d2 power state": health.OK, "d3 power state": health.OK, "presence detected": health.OK,
	"terminator presence detected": health.OK, "power supply inactive": health.OK, "correctable ecc": health.OK, "spare": health.OK,
	"drive present": health.OK, "hot spare": health.OK, "parity check in progress": health.OK, "log area reset/cleared": health.OK,
	"os reset": health.OK, "os shut down": health.OK, "os graceful stop": health.OK, "os graceful shutdown": health.OK,
	"system reconfigured": health.OK, "oem system boot event": health.OK, "entry added to auxiliary log": health.OK, "pef action": health.OK,
	"timestamp clock sync": health.OK, "power button pressed": health.OK, "sleep button pressed": health.OK, "reset button pressed": health.OK,
	"fru latch": health.OK, "fru service": health.OK, "connected": health.OK, "initiated by power up": health.OK, "initiated by hard reset": health.OK,
	"initiated by warm reset": health.OK, "user requested pxe boot": health.OK, "automatic boot to diagnostic": health.OK,
	"os initiated hard reset": health.OK, "os initiated warm reset": health.OK, "system restart": health.OK, "a: boot completed": health.OK,
	"c: boot completed": health.OK, "pxe boot completed": health.OK, "diagnostic boot completed": health.OK, "cd-rom boot completed": health.OK,
	"rom boot completed": health.OK, "boot completed - device not specified": health.OK, "installation started": health.OK,
	"installation completed": health.OK, "identify status": health.OK, "device installed": health.OK, "ready for device installation": health.OK,
	"ready for device removal": health.OK, "slot power is off": health.OK, "device removal request": health.OK, "slot is disabled": health.OK,
	"spare device": health.OK, "s0/g0: working": health.OK, "s1: sleeping with system hw & processor context maintained": health.OK,
	"s2: sleeping, processor context lost": health.OK, "s3: sleeping, processor & hw context lost, memory retained": health.OK,
	"s4: non-volatile sleep/suspend-to-disk": health.OK, "s5/g2: soft-off": health.OK, "s4/s5: soft-off": health.OK, "g3: mechanical off": health.OK,
	"sleeping in s1/s2/s3 state": health.OK, "sleeping in s1/s2 or s3 state": health.OK, "g1: sleeping": health.OK,
	"s5: entered by override": health.OK, "legacy on state": health.OK, "legacy off state": health.OK, "power off/down": health.OK,
	"power cycle": health.OK, "platform generated page": health.OK, "platform generated lan alert": health.OK,
	"platform event trap generated": health.OK, "platform generated snmp trap, oem format": health.OK, "present": health.OK, "absent": health.OK,
	"heartbeat": health.OK, "hardware change detected": health.OK, "firmware or software change detected": health.OK,
	"hardware change success": health.OK, "firmware or software change success": health.OK, "not installed": health.OK, "active": health.OK,
	"activation requested": health.OK, "activation in progress": health.OK, "deactivation requested": health.OK, "deactivation in progress": health.OK,
	"transition to m0": health.OK, "transition to m1": health.OK, "transition to m2": health.OK, "transition to m3": health.OK,
	"transition to m4": health.OK, "transition to m5": health.OK, "transition to m6": health.OK, "ipmb-a enabled, ipmb-b enabled": health.OK,
	"module handle closed": health.OK, "memory initialization": health.OK, "hard-disk initialization": health.OK,
	"secondary cpu initialization": health.OK, "user authentication": health.OK, "user-initiated system setup": health.OK,
	"usb resource configuration": health.OK, "pci resource configuration": health.OK, "option rom initialization": health.OK,
	"video initialization": health.OK, "cache initialization": health.OK, "smbus initialization": health.OK,
	"keyboard controller initialization": health.OK, "management controller initialization": health.OK, "docking station attachment": health.OK,
	"enabling docking station": health.OK, "docking station ejection": health.OK, "disabling docking station": health.OK,
	"calling operating system wake-up vector": health.OK, "system boot initiated": health.OK, "motherboard initialization": health.OK,
	"floppy initialization": health.OK, "keyboard test": health.OK, "pointing device test": health.OK, "primary cpu initialization": health.OK,
	"hotswap healty": health.OK, "at rest": health.OK,

	// The reading comes back from beyond a limit.
	"lower non-critical going high": health.OK, "lower critical going high": health.OK, "lower non-recoverable going high": health.OK,
	"upper non-critical going low": health.OK, "upper critical going low": health.OK, "upper non-recoverable going low": health.OK,

	"predictive failure asserted": health.Warning, "predictive failure": health.Warning, "limit exceeded": health.Warning,
	"performance lags": health.Warning, "transition to non-critical from ok": health.Warning,
	"transition to non-critical from more severe": health.Warning, "transition to off line": health.Warning, "transition to off duty": health.Warning,
	"transition to power off": health.Warning, "transition to degraded": health.Warning, "redundancy degraded": health.Warning,
	"redundancy degraded from fully redundant": health.Warning, "redundancy degraded from non-redundant": health.Warning,
	"non-redundant: sufficient from redundant": health.Warning, "non-redundant: sufficient from insufficient": health.Warning,
	"general chassis intrusion": health.Warning, "drive bay intrusion": health.Warning, "i/o card area intrusion": health.Warning,
	"processor area intrusion": health.Warning, "system unplugged from lan": health.Warning, "unauthorized dock": health.Warning,
	"fan area intrusion": health.Warning, "front panel lockout violation attempted": health.Warning,
	"pre-boot password violation - user password": health.Warning, "pre-boot password violation - setup password": health.Warning,
	"pre-boot password violation - network boot password": health.Warning, "other pre-boot password violation": health.Warning,
	"out-of-band access password violation": health.Warning, "throttled": health.Warning, "correctable machine check error": health.Warning,
	"ac out-of-range, but present": health.Warning, "correctable ecc logging limit reached": health.Warning, "rebuild in progress": health.Warning,
	"correctable memory error logging disabled": health.Warning, "event logging disabled": health.Warning, "all event logging disabled": health.Warning,
	"log full": health.Warning, "log almost full": health.Warning, "bus correctable error": health.Warning, "bus degraded": health.Warning,
	"os expired": health.Warning, "os power down": health.Warning, "os power cycle": health.Warning, "os nmi/diag interrupt": health.Warning,
	"os pre-timeout interrupt": health.Warning, "bios reset": health.Warning, "timer interrupt": health.Warning, "hard reset": health.Warning,
	"power down": health.Warning, "no bootable media": health.Warning, "non-bootable disk in drive": health.Warning,
	"pxe server not found": health.Warning, "invalid boot sector": health.Warning, "timeout waiting for selection": health.Warning,
	"installation aborted": health.Warning, "pef initiated soft shutdown": health.Warning, "agent not responding": health.Warning,
	"interlock": health.Warning, "240va power down": health.Warning, "interlock power down": health.Warning, "low": health.Warning,
	"heartbeat lost": health.Warning, "sensor access degraded or unavailable": health.Warning,
	"controller access degraded or unavailable": health.Warning, "hardware incompatibility detected": health.Warning,
	"firmware or software incompatibility detected": health.Warning, "invalid or unsupported hardware version": health.Warning,
	"invalid or unsupported firmware or software version": health.Warning, "communication lost": health.Warning, "transition to m7": health.Warning,
	"ipmb-a disabled, ipmb-b enabled": health.Warning, "ipmb-a enabled, ipmb-b disabled": health.Warning, "quiesced": health.Warning,
	"module handle opened": health.Warning, "removable boot media not found": health.Warning, "no video device selected": health.Warning,
	"at or below lower non-critical": health.Warning, "at or above upper non-critical": health.Warning, "lower non-critical going low": health.Warning,
	"upper non-critical going high": health.Warning, "eisa failsafe timeout": health.Warning, "bus timeout": health.Warning,

	"transition to critical from less severe": health.Fault, "transition to critical from non-recoverable": health.Fault,
	"transition to non-recoverable": health.Fault, "transition to non-recoverable from less severe": health.Fault, "install error": health.Fault,
	"redundancy lost": health.Fault, "non-redundant: insufficient resources": health.Fault, "ierr": health.Fault, "thermal trip": health.Fault,
	"frb1/bist failure": health.Fault, "frb2/hang in post failure": health.Fault, "frb3/processor startup/init failure": health.Fault,
	"configuration error": health.Fault, "config error": health.Fault, "config error: vendor mismatch": health.Fault,
	"config error: revision mismatch": health.Fault, "config error: processor missing": health.Fault,
	"config error: power supply rating mismatch": health.Fault, "config error: voltage rating mismatch": health.Fault,
	"sm bios uncorrectable cpu-complex error": health.Fault, "uncorrectable machine check exception": health.Fault, "failure detected": health.Fault,
	"power supply ac lost": health.Fault, "ac lost or out-of-range": health.Fault, "ac lost": health.Fault, "soft-power control failure": health.Fault,
	"soft power control failure": health.Fault, "uncorrectable ecc": health.Fault, "parity": health.Fault, "memory scrub failed": health.Fault,
	"memory device disabled": health.Fault, "critical overtemperature": health.Fault, "drive fault": health.Fault, "in critical array": health.Fault,
	"in failed array": health.Fault, "rebuild aborted": health.Fault, "rebuild/remap aborted": health.Fault, "no system memory installed": health.Fault,
	"no usable system memory": health.Fault, "unrecoverable ide device failure": health.Fault, "unrecoverable system-board failure": health.Fault,
	"unrecoverable diskette failure": health.Fault, "unrecoverable hard-disk controller failure": health.Fault,
	"unrecoverable ps/2 or usb keyboard failure": health.Fault, "unrecoverable video controller failure": health.Fault,
	"bios corruption detected": health.Fault, "cpu voltage mismatch": health.Fault, "cpu speed mismatch failure": health.Fault,
	"unknown error": health.Fault, "unknown hang": health.Fault, "undetermined system hardware failure": health.Fault,
	"nmi/diag interrupt": health.Fault, "i/o channel check nmi": health.Fault, "software nmi": health.Fault, "pci perr": health.Fault,
	"pci serr": health.Fault, "bus uncorrectable error": health.Fault, "fatal nmi": health.Fault, "bus fatal error": health.Fault,
	"error during system startup": health.Fault, "run-time critical stop": health.Fault, "installation failed": health.Fault,
	"fault status": health.Fault, "timer expired": health.Fault, "management controller off-line": health.Fault,
	"management controller unavailable": health.Fault, "sensor failure": health.Fault, "fru failure": health.Fault, "failed": health.Fault,
	"ipmb-a disabled, ipmb-b disabled": health.Fault, "hotswap fault": health.Fault, "at or below lower critical": health.Fault,
	"at or above upper critical": health.Fault, "at or below lower non-recoverable": health.Fault, "at or above upper non-recoverable": health.Fault,
	"lower critical going low": health.Fault, "upper critical going high": health.Fault, "lower non-recoverable going low": health.Fault,
	"upper non-recoverable going high": health.Fault,
}

// missed are states that are bad news when they end.
var missed = map[string]bool{"fully redundant": true, "presence detected": true, "drive present": true, "device present": true, "present": true,
	"connected": true, "heartbeat": true, "performance met": true, "device enabled": true, "device inserted/device present": true}

// State is the level of a state or event of ipmitool. One that it does not know is
// Unknown.
func State(word string) health.Level {
	word = strings.ToLower(strings.TrimSpace(word))
	if l, known := states[word]; known {
		return l
	}
	// Some BMCs say more in parentheses, and this one has the part behind it.
	if strings.HasPrefix(word, "firmware or software change ") {
		return health.OK
	}
	short, _, _ := strings.Cut(word, " (")
	return health.Grade(states, short)
}

// over is the level of a state that has ended.
func over(word string) health.Level {
	switch l := State(word); {
	case l == health.Unknown:
		return l
	case missed[strings.ToLower(strings.TrimSpace(word))]:
		return health.Warning
	}
	return health.OK
}
