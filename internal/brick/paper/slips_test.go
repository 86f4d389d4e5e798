package paper

// Slip is where a document contradicts itself, or its own figures.
type Slip struct {
	Where string // in the document
	Says  string
	Is    string // what its other figures give, and where they stand
}

// Slips lists those of a document, by the text of System.Source, in the order of its pages.
func Slips(source string) []Slip {
	for name, list := range slips {
		if y, _ := Find(name); y.Source == source {
			return list
		}
	}
	return nil
}

// slips are by a system that the document describes.
var slips = map[string][]Slip{
	"nss4-ha-288": {
		{"2.3", "sequential read up to 4,508 MB/s", "4,058 (table 2 and 5.1): digits exchanged"},
		{"table 1, table 5", "NSS3-HA runs RHEL 6.1 in table 1, RHEL 5.5 in table 5", "one of them; kernel and XFS of table 5 are those of RHEL 5.5, which table 1 gives NSS2-HA"},
		{"table 5, table 10", "one SAS card in each server of NSS3-HA; two in all releases by table 10", "one: 3.3 names it as a difference"},
		{"5.1", "random write and read are compared, and 4,058 GB/s", "sequential ones, and MB/s"},
		{"5.1, A.1", "256 GB are moved; 128 GB by the appendix, with commands of 64 x 4 GB", "256 GB (64 x 4); 128 was NSS3-HA's (5.1)"},
		{"5.3", "128, 256 and 512 threads are 2, 3 or 4 on each of 64 clients", "2, 4 and 8"},
	},
	"nss5.5": {
		{"table 2", "E5-2680 v2 of 8 cores", "that processor has 10; here 8, as the table has it"},
	},
	"nfs-dfc": {
		{"table 1, A.2", "the operating system on RAID 0 and swap on RAID 1 (table 1)", "the reverse, as 2.4.2, A.2 and A.3 have it: the system on RAID 1, swap on RAID 0"},
		{"3.2", "random read is over 20 times the baseline's", "13.2 times: 123,000 over 9,300 (3.2, figure 8)"},
	},
	"nss7.4-ha": {
		{"table 5 (of files)", "1,436,000 files at 128 threads", "1,536,000: 3,000 files in each of 4 directories of 128 threads; and a second table is table 5"},
		{"performance summary", "NSS7.3-HA's random read is 42 % higher", "73 % higher: 28,811 over 16,607. NSS7.4-HA's is 42.4 % lower"},
		{"closing table", "decreases of 1.4, 0.7, 0.7, 42, 1.1, 35 and 35 %", "1.5, 0.7, 0.7, 42.4, 1.1, 35.4 and 35.4 %, from the values beside them"},
	},
	"lustre-brick": {
		{"table 1", "24 drives of 136 TB in the MD3220", "136 GB"},
		{"table 1", "five MD1200 beside the MD3200", "four (4.2, figure 5): 60 slots"},
		{"table 1", "108.75 TB raw", "120 TB: 60 disks of 2 TB; reckoned back from 87 TB usable"},
		{"10.7", "66,000 files of each client", "64,000: 32 directories of 2,000 by its commands, which make files at the leaves only"},
		{"11", "280 TB usable of three bricks", "288 TB or 261.9 TiB by geometry"},
		{"4.2.1", "read ahead of 2048 KB, and of 8192 KB", "both stand there; 2048 here"},
		{"appendix B", "disk (2,1) twice in a virtual disk, (1,1) never", "each once"},
	},
}
