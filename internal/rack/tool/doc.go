// package tool runs programs of the host, keeps the processes of a rack by its run
// directory, and reads and writes its files. It knows nothing of machines, disks or power;
// what a rack consists of may not live here.
package tool
