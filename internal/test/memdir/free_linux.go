package memdir

import "syscall"

// free returns how many bytes a directory in memory has room for. It is 0 for a directory
// on a disk.
func free(dir string) uint64 {
	const tmpfs = 0x01021994
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != tmpfs {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
