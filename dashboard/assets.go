package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assetFiles embed.FS

// assetVersion is a part of the address of every asset, so that browsers keep assets for
// good and load them anew when they have changed.
var assetVersion = hashAssets()

func hashAssets() string {
	sum := sha256.New()
	err := fs.WalkDir(assetFiles, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := assetFiles.ReadFile(name)
		sum.Write(b)
		return err
	})
	if err != nil {
		panic(err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	b, err := assetFiles.ReadFile(path.Join("assets", path.Base(name)))
	if err != nil || r.PathValue("version") != assetVersion {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
}
