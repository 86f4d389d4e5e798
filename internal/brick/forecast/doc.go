// Package forecast says what a design should deliver and survive before it
// is built: a bottleneck model of the way from disk to client, with every
// coefficient named, sourced and changeable; the durability of RAID groups;
// and a seeded simulation of fleets of bricks over years. It computes; it
// never touches a host.
package forecast
