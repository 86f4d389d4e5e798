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
var states = graded(map[health.Level]string{
	// The last ones: the reading comes back from beyond a limit.
	health.OK: `transition to idle|transition to active|transition to busy|state deasserted|predictive failure deasserted|limit not exceeded|performance met|
transition to ok|monitor|informational|device absent|device present|device enabled|device inserted/device present|device removed/device absent|
transition to running|transition to in test|transition to on line|transition to power save|fully redundant|d0 power state|d1 power state|
d2 power state|d3 power state|presence detected|terminator presence detected|power supply inactive|correctable ecc|spare|drive present|hot spare|
parity check in progress|log area reset/cleared|os reset|os shut down|os graceful stop|os graceful shutdown|system reconfigured|oem system boot event|
entry added to auxiliary log|pef action|timestamp clock sync|power button pressed|sleep button pressed|reset button pressed|fru latch|fru service|
connected|initiated by power up|initiated by hard reset|initiated by warm reset|user requested pxe boot|automatic boot to diagnostic|
os initiated hard reset|os initiated warm reset|system restart|a: boot completed|c: boot completed|pxe boot completed|diagnostic boot completed|
cd-rom boot completed|rom boot completed|boot completed - device not specified|installation started|installation completed|identify status|
device installed|ready for device installation|ready for device removal|slot power is off|device removal request|slot is disabled|spare device|
s0/g0: working|s1: sleeping with system hw & processor context maintained|s2: sleeping, processor context lost|
s3: sleeping, processor & hw context lost, memory retained|s4: non-volatile sleep/suspend-to-disk|s5/g2: soft-off|s4/s5: soft-off|g3: mechanical off|
sleeping in s1/s2/s3 state|sleeping in s1/s2 or s3 state|g1: sleeping|s5: entered by override|legacy on state|legacy off state|power off/down|
power cycle|platform generated page|platform generated lan alert|platform event trap generated|platform generated snmp trap, oem format|present|absent|
heartbeat|hardware change detected|firmware or software change detected|hardware change success|firmware or software change success|not installed|
active|activation requested|activation in progress|deactivation requested|deactivation in progress|transition to m0|transition to m1|transition to m2|
transition to m3|transition to m4|transition to m5|transition to m6|ipmb-a enabled, ipmb-b enabled|module handle closed|memory initialization|
hard-disk initialization|secondary cpu initialization|user authentication|user-initiated system setup|usb resource configuration|
pci resource configuration|option rom initialization|video initialization|cache initialization|smbus initialization|keyboard controller initialization|
management controller initialization|docking station attachment|enabling docking station|docking station ejection|disabling docking station|
calling operating system wake-up vector|system boot initiated|motherboard initialization|floppy initialization|keyboard test|pointing device test|
primary cpu initialization|hotswap healty|at rest|
lower non-critical going high|lower critical going high|lower non-recoverable going high|upper non-critical going low|upper critical going low|
upper non-recoverable going low`,
	health.Warning: `predictive failure asserted|predictive failure|limit exceeded|performance lags|transition to non-critical from ok|
transition to non-critical from more severe|transition to off line|transition to off duty|transition to power off|transition to degraded|
redundancy degraded|redundancy degraded from fully redundant|redundancy degraded from non-redundant|non-redundant: sufficient from redundant|
non-redundant: sufficient from insufficient|general chassis intrusion|drive bay intrusion|i/o card area intrusion|processor area intrusion|
system unplugged from lan|unauthorized dock|fan area intrusion|front panel lockout violation attempted|pre-boot password violation - user password|
pre-boot password violation - setup password|pre-boot password violation - network boot password|other pre-boot password violation|
out-of-band access password violation|throttled|correctable machine check error|ac out-of-range, but present|correctable ecc logging limit reached|
rebuild in progress|correctable memory error logging disabled|event logging disabled|all event logging disabled|log full|log almost full|
bus correctable error|bus degraded|os expired|os power down|os power cycle|os nmi/diag interrupt|os pre-timeout interrupt|bios reset|timer interrupt|
hard reset|power down|no bootable media|non-bootable disk in drive|pxe server not found|invalid boot sector|timeout waiting for selection|
installation aborted|pef initiated soft shutdown|agent not responding|interlock|240va power down|interlock power down|low|heartbeat lost|
sensor access degraded or unavailable|controller access degraded or unavailable|hardware incompatibility detected|
firmware or software incompatibility detected|invalid or unsupported hardware version|invalid or unsupported firmware or software version|
communication lost|transition to m7|ipmb-a disabled, ipmb-b enabled|ipmb-a enabled, ipmb-b disabled|quiesced|module handle opened|
removable boot media not found|no video device selected|at or below lower non-critical|at or above upper non-critical|lower non-critical going low|
upper non-critical going high|eisa failsafe timeout|bus timeout`,
	health.Fault: `transition to critical from less severe|transition to critical from non-recoverable|transition to non-recoverable|
transition to non-recoverable from less severe|install error|redundancy lost|non-redundant: insufficient resources|ierr|thermal trip|frb1/bist failure|
frb2/hang in post failure|frb3/processor startup/init failure|configuration error|config error|config error: vendor mismatch|
config error: revision mismatch|config error: processor missing|config error: power supply rating mismatch|config error: voltage rating mismatch|
sm bios uncorrectable cpu-complex error|uncorrectable machine check exception|failure detected|power supply ac lost|ac lost or out-of-range|ac lost|
soft-power control failure|soft power control failure|uncorrectable ecc|parity|memory scrub failed|memory device disabled|critical overtemperature|
drive fault|in critical array|in failed array|rebuild aborted|rebuild/remap aborted|no system memory installed|no usable system memory|
unrecoverable ide device failure|unrecoverable system-board failure|unrecoverable diskette failure|unrecoverable hard-disk controller failure|
unrecoverable ps/2 or usb keyboard failure|unrecoverable video controller failure|bios corruption detected|cpu voltage mismatch|
cpu speed mismatch failure|unknown error|unknown hang|undetermined system hardware failure|nmi/diag interrupt|i/o channel check nmi|software nmi|
pci perr|pci serr|bus uncorrectable error|fatal nmi|bus fatal error|error during system startup|run-time critical stop|installation failed|
fault status|timer expired|management controller off-line|management controller unavailable|sensor failure|fru failure|failed|
ipmb-a disabled, ipmb-b disabled|hotswap fault|at or below lower critical|at or above upper critical|at or below lower non-recoverable|
at or above upper non-recoverable|lower critical going low|upper critical going high|lower non-recoverable going low|upper non-recoverable going high`,
})

// graded returns the level of each word; bars and ends of lines separate them.
func graded(words map[health.Level]string) map[string]health.Level {
	out := map[string]health.Level{}
	for level, text := range words {
		for _, w := range strings.Split(strings.ReplaceAll(text, "\n", ""), "|") {
			out[w] = level
		}
	}
	return out
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
