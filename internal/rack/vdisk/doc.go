// Package vdisk serves image files as SCSI devices over iSCSI, behind a write cache that a killed process
// loses as a disk without power does. It knows no rack: which disks there are, and who
// reaches them, may not live here.
package vdisk
