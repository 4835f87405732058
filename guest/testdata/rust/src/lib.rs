//! A function in Rust without a library of Outboard: it declares its imports and exports
//! itself. It counts the words of a request.
//!
//! words.wasm beside Cargo.toml is this, built so:
//!
//!     cargo build --release --target wasm32-wasip1
//!     cp target/wasm32-wasip1/release/words.wasm .
use std::collections::BTreeMap;

#[link(wasm_import_module = "outboard")]
extern "C" {
    fn request_size() -> i32;
    fn request_read(to: *mut u8, size: i32, offset: i32) -> i32;
    fn response_write(from: *const u8, size: i32) -> i32;
    fn meta(name: *const u8, size: i32) -> i32;
    #[link_name = "import"]
    fn import_resource(name: *const u8, size: i32) -> i32;
    fn result_size() -> i32;
    fn result_read(to: *mut u8, size: i32, offset: i32) -> i32;
    fn secret(handle: i32) -> i32;
}

/// It is 1 in every request, since each begins with the memory as it was at the start.
static mut CALLS: u32 = 0;

fn request() -> Vec<u8> {
    let mut all = vec![0; unsafe { request_size() } as usize];
    let n = unsafe { request_read(all.as_mut_ptr(), all.len() as i32, 0) };
    all.truncate(n as usize);
    all
}

fn result() -> Vec<u8> {
    let mut all = vec![0; unsafe { result_size() } as usize];
    let n = unsafe { result_read(all.as_mut_ptr(), all.len() as i32, 0) };
    all.truncate(n as usize);
    all
}

fn respond(text: &str) {
    unsafe { response_write(text.as_ptr(), text.len() as i32) };
}

#[no_mangle]
pub extern "C" fn handle() -> i32 {
    let calls = unsafe { CALLS += 1; CALLS };
    let text = request();
    let Ok(text) = std::str::from_utf8(&text) else {
        respond("the request is not UTF-8");
        return 1;
    };
    match text {
        "panic" => panic!("asked to"),
        "secret" => {
            let name = "secret:token";
            let handle = unsafe { import_resource(name.as_ptr(), name.len() as i32) };
            if handle == 0 || unsafe { secret(handle) } != 0 {
                respond(&String::from_utf8_lossy(&result()));
                return 1;
            }
            respond(&String::from_utf8_lossy(&result()));
            return 0;
        }
        _ => {}
    }
    let mut words: BTreeMap<&str, u32> = BTreeMap::new();
    for word in text.split_whitespace() {
        *words.entry(word).or_default() += 1;
    }
    for (word, count) in &words {
        respond(&format!("{word} {count}\n"));
    }
    let name = "method";
    if unsafe { meta(name.as_ptr(), name.len() as i32) } == 1 {
        respond(&format!("method {}\n", String::from_utf8_lossy(&result())));
    }
    respond(&format!("call {calls}\n"));
    0
}
