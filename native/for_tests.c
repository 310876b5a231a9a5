/* What tests need and the service does not: pieces of records that no client has consumed, what is
 * sent as Python sees it, and how a table grows. Included by ringfence_native.c if FOR_TESTS is defined. */

/* piece(records, sources, errors): records are tuples (source, offset, time, key, value, headers),
 * in the order of their sources, which are indexes; names of headers are bytes. */
static PyObject *piece(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *records, *sources, *errors, *headers, *pair;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyList_Type, &records, &PyList_Type, &sources,
                          &PyList_Type, &errors))
        return NULL;
    Piece *piece = new_piece(PyList_Size(records), 0);
    size_t bytes = 1;
    if (!piece)
        return NULL;
    Py_DECREF(piece->sources), Py_DECREF(piece->errors);
    piece->sources = Py_NewRef(sources), piece->errors = Py_NewRef(errors);
    for (Py_ssize_t i = 0; i < piece->count; i++) {
        Row *row = &piece->rows[i];
        Py_ssize_t key, value, length;
        const char *name, *text;
        if (!PyArg_ParseTuple(PyList_GetItem(records, i), "iLLz#z#O!", &row->source, &row->offset,
                              &row->time, &row->key, &key, &row->value, &value, &PyList_Type,
                              &headers))
            goto failed;
        row->key_length = (size_t)key, row->value_length = (size_t)value;
        bytes += (size_t)key + (size_t)value, row->own_offset = row->offset;
        if (PyList_Size(headers))
            row->headers = rk.headers_new((size_t)PyList_Size(headers));
        for (Py_ssize_t at = 0; at < PyList_Size(headers); at++) {
            pair = PyList_GetItem(headers, at);
            if (!PyArg_ParseTuple(pair, "yz#", &name, &text, &length))
                goto failed;
            rk.header_add(row->headers, name, -1, text, text ? length : -1);
        }
        look_at(row);
    }
    free(piece->arena);
    if (!(piece->arena = malloc(bytes)))
        goto failed;
    char *end = piece->arena;
    for (Py_ssize_t i = 0; i < piece->count; i++) {
        Row *row = &piece->rows[i];
        row->key = kept(&end, row->key, row->key_length);
        row->value = kept(&end, row->value, row->value_length);
    }
    return (PyObject *)piece;
failed:
    Py_DECREF((PyObject *)piece);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

/* output(piece, index): the arguments of `Producer.produce` for a record that is to be sent; None for
 * a duplicate that is dropped. */
static PyObject *output(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *piece;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "O!n", PieceType, &piece, &at) ||
        !is_range((Piece *)piece, at, at + 1))
        return NULL;
    Row *row = &((Piece *)piece)->rows[at];
    if (row->fate == DROP)
        return Py_NewRef(Py_None);
    if (row->fate != SEND)
        return PyErr_SetString(PyExc_ValueError, "Python decides this record"), NULL;
    if (!is_prepared(row))
        return NULL;
    look_at(row);
    return Py_BuildValue("sNNiOOLN", row->topic, bytes_of(row->value, row->value_length),
                         bytes_of(row->key, row->key_length), row->partition, Py_None, Py_None,
                         (long long)row->sent_time, headers_of(row));
}

/* slots_for(live): how many slots a table makes for so many numbers. */
static PyObject *slots_for(PyObject *Py_UNUSED(module), PyObject *live)
{
    size_t number = PyLong_AsSize_t(live);
    return PyErr_Occurred() ? NULL : PyLong_FromSize_t(size_for(number));
}

#define FUNCTIONS_FOR_TESTS                                                                        \
    {"piece", piece, METH_VARARGS, NULL}, {"output", output, METH_VARARGS, NULL},                  \
        {"slots_for", slots_for, METH_O, NULL},
