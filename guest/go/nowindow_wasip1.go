//go:build !outboardwindow

package guest

func requestInPlace() ([]byte, bool) { return nil, false }

func respondInPlace([]byte) bool { return false }

func hostAlloc(n int) []byte { return make([]byte, n) }
