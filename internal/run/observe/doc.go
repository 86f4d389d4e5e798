// Package observe judges the health of a brick. It gathers facts from each host in
// one read-only request, and compares them with the Design. The result is a tree
// from disk to client. The judgement is pure: functions of recorded facts. The
// package never changes a host; remedies are texts only.
package observe
