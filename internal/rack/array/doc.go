// package array is the inside of a RAID array: the firmware of its machine, the state that
// it prints, the management interface of an ME4, and the logins of its host ports. What
// switches an array on or breaks it may not live here.
package array
