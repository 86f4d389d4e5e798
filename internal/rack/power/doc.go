// package power has the ends of power control that fence agents see: what BMCs (ipmi_sim)
// and PDUs (snmpd) are configured with, and their protocols with Mortar. What switches a
// node may not live here.
package power
