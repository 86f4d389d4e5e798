// Package observe says how healthy a brick is: it gathers facts of every host
// in one read-only request each, and judges them against the Design as a tree
// from disk to client. The judgement is pure: functions over recorded facts.
// Nothing here may change a host, and nothing here may know how a fault is
// mended beyond saying it in words.
package observe
