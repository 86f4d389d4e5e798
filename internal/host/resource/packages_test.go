package resource

// osRelease has a host on paper be Debian 13.
const osRelease = "ID=debian\nVERSION_ID=\"13\"\n"
