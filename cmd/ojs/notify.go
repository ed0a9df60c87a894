package main

import (
	"errors"
	"net"
)

// notify tells systemd of the state of the process, such as READY=1, if it has started it
// with Type=notify.
func notify(env func(string) string, state string) error {
	path := env("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return errors.Join(err, conn.Close())
}
