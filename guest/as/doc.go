// Package as tests what authors of functions import in AssemblyScript.
package as
