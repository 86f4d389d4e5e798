package linux

// Nobody is the number of the user, and of the group, that NFS makes of a
// client's root by default. Distributions name the group differently.
// Source: exports(5), anonuid; proc_sys_kernel(5), overflowuid
const Nobody = "65534"
