package memory

import (
	"bytes"
	"context"

	"github.com/ojsengine/ojs/storage"
)

// addLog keeps the log of a change that has given the job a version.
func (s *store) addLog(j *job, version uint64, data []byte) {
	list := append(s.logs[j.id], storage.Log{Version: version, Data: bytes.Clone(data)})
	if n := len(list) - storage.MaxLogs; n > 0 {
		list = append([]storage.Log(nil), list[n:]...) // or the oldest would stay in memory
	}
	s.logs[j.id] = list
}

// Logs implements storage.Storage.
func (s personal) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	var list []storage.Log
	for _, l := range s.logs[id] {
		list = append(list, storage.Log{Version: l.Version, Data: bytes.Clone(l.Data)})
	}
	return list, nil
}
